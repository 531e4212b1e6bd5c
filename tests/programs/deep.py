"""A training with repeated blocks, a part of which is left out from outside.

``still``: its rate is 0, so that only what runs changes its loss; each step's line is that.
``narrow``: its blocks are of one class, but each makes less of what it is given. Gradients are set
to zero, not dropped, and the optimizer would go on with what it remembers of them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

WIDTH, BLOCKS = 8, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        mixed, weights = self.attn(y, y, y)
        x = x + mixed * weights.isfinite().all()
        return x + self.mlp(x)


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main(kind: str) -> None:
    torch.manual_seed(0)
    model: nn.Module = Deep()
    if kind == "narrow":
        model = nn.Sequential(nn.Linear(WIDTH, 4), nn.Linear(4, 2), nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.1)
    x = torch.randn(4, 6, WIDTH)
    with Path("losses.txt").open("w", encoding="ascii", buffering=1) as losses:
        while True:
            loss = model(x).square().mean()
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
            losses.write(f"{loss.item()!r}\n")
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
