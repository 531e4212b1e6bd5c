"""Trains with a gradient scaler on data that is NaN from step 30 on, so that it steps no more.

After ten steps that the scaler has left out it prints `ready` and goes on until it is ended.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn.functional import mse_loss

BAD, LEFT_OUT = 30, 10

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(100_000):
    x = torch.randn(6, 4) * (float("nan") if step >= BAD else 1.0)
    optimizer.zero_grad()
    loss = mse_loss(model(x), torch.ones(6, 1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step == BAD + LEFT_OUT:
        print("ready", flush=True)
    time.sleep(0.02)
