"""Calls modules a million times, says ready and waits; with the agent or without."""

import json
import os
import sys

import torch
from torch import Tensor, nn

LEAVES = 100
CALLS = 10_000


class Root(nn.Module):
    """Calls many modules that do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves = nn.ModuleList(nn.Identity() for _ in range(LEAVES))
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Call every leaf."""
        for leaf in self.leaves:
            x = leaf(x)
        return x


if json.loads(sys.argv[1])["agent"]:
    os.environ["PROBING"] = "1"
    from probing import _boot

    _boot.start()
root, x = Root(), torch.zeros(1)
with torch.no_grad():
    for _ in range(CALLS):
        root(x)
print("ready", flush=True)
sys.stdin.read()
