"""A generator and a critic, whose gradients are set to zero behind its step instead of before."""

from __future__ import annotations

import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
optimizer_g = torch.optim.SGD(generator.parameters(), lr=1e-3)
optimizer_c = torch.optim.SGD(critic.parameters(), lr=1e-3)
step = 0
while True:
    noise, real = torch.randn(8, 4), torch.randn(8, 4)
    (critic(generator(noise).detach()) - critic(real)).mean().backward()
    optimizer_c.step()
    optimizer_c.zero_grad()
    optimizer_g.zero_grad()
    (-critic(generator(noise))).mean().backward()
    optimizer_g.step()
    step += 1
    print("step", step, flush=True)
    time.sleep(0.02)
