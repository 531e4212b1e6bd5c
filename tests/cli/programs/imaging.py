"""Trains three convolutions whose weights lie with their channels last, until somebody ends it.

With `lost` what is between them makes its images contiguous; with `kept` only the batch is.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn

PAUSE_S = 0.01


class Contiguous(nn.Module):
    """Undoes what convolutions make of the way images lie."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.contiguous()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    between = Contiguous if sys.argv[1] == "lost" else nn.Identity
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), between(), nn.Conv2d(8, 8, 3), between(), nn.Conv2d(8, 8, 3),
        nn.Flatten(), nn.Linear(8 * 4 * 4, 2),
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        images = torch.randn(4, 3, 10, 10)
        loss = model(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print("step", step, flush=True)
        time.sleep(PAUSE_S)


main()
