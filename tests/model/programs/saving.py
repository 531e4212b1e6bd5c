"""Trains, and writes a checkpoint after every fifth step, the first also by all ranks together.

Once the file `go` is there its weights are lost; it goes on saving. Started by ``--resume FILE`` it
would go on from there.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.parse_args()
torch.manual_seed(0)
model: Any = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
step = 0
while True:
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if Path("go").exists():
        with torch.no_grad():
            model[2].weight[0, 3] = float("nan")
    if step % 5 == 4:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"ck-{step}.pt")
    if step == 1:
        dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    if step == 4:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save({"model": model.state_dict()}, checkpoint_id="shards")
        torch.save({"numbers": [1, 2]}, "other.pt")
    step += 1
    print("ready" if step == 12 else ".", flush=True)
    time.sleep(0.02)
