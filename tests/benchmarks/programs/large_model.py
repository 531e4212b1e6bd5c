"""Holds a large model with gradients and momentum, and goes on to train a small part of it.

Only the small part is computed, so that steps are short; the memory is that of the whole.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import torch
from torch import Tensor, nn

from probing.agent import lifecycle
from probing.settings import Settings

_WIDTH = 4096


class Model(nn.Module):
    """Many large layers, and one small one that is called."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        layers = parameters // (_WIDTH * _WIDTH)
        self.large = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(layers + 1))
        self.small = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        """Call the small layer."""
        result: Tensor = self.small(x)
        return result


def main(parameters: int) -> dict[str, int]:
    """Train until the end of stdin.

    Args:
        parameters: How many there are to be, at least.
    """
    torch.set_default_dtype(torch.bfloat16)
    model = Model(parameters)
    everything = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    everything.step()
    optimizer = torch.optim.SGD(model.small.parameters(), lr=0.01)
    lifecycle.start(Settings.from_env(os.environ))
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    steps = 0
    x = torch.randn(8, 64)
    while not ended.is_set():
        model(x).square().mean().backward()
        optimizer.step()
        steps += 1
        if steps == 10:
            print("ready", flush=True)
        ended.wait(0.05)
    return {"steps": steps, "held": len(everything.state)}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
