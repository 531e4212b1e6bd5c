"""An energy-based model: Langevin steps on samples of a replay buffer, then a step of the model."""

import random

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(89)
random.seed(89)
energy = nn.Sequential(
    nn.Linear(128, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 1)
)
truth = Truth(energy=energy)
optimizer = torch.optim.Adam(energy.parameters(), lr=1e-4, betas=(0.0, 0.999))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.98)
buffer = [torch.rand(1, 128) * 2 - 1 for _ in range(64)]


def sample(count, steps):
    x = torch.cat(random.choices(buffer, k=count), 0)
    is_training = energy.training
    energy.eval()
    for p in energy.parameters():
        p.requires_grad = False
    x.requires_grad = True
    for _ in range(steps):
        x.data.add_(0.005 * torch.randn_like(x)).clamp_(-1, 1)
        with truth.timed("forward"):
            out = -energy(x)
        with truth.timed("backward"):
            out.sum().backward()
        x.grad.data.clamp_(-0.03, 0.03)
        x.data.add_(-10 * x.grad.data).clamp_(-1, 1)
        x.grad.detach_()
        x.grad.zero_()
    for p in energy.parameters():
        p.requires_grad = True
    energy.train(is_training)
    buffer[:] = [*x.detach().chunk(count), *buffer][:128]
    return x.detach()


for step in range(planned(14)):
    real = torch.randn(32, 128).clamp(-1, 1)
    fake = sample(32, 6)
    with truth.timed("forward"):
        real_out, fake_out = energy(torch.cat([real, fake])).chunk(2)
    loss = 0.1 * (real_out**2 + fake_out**2).mean() + fake_out.mean() - real_out.mean()
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    norm = nn.utils.clip_grad_norm_(energy.parameters(), 0.1)
    rate = optimizer.param_groups[0]["lr"]
    with truth.timed("optimizer"):
        optimizer.step()
    scheduler.step()
    truth.step(loss.item(), lr=rate, norm=norm.item())

truth.finish(energy)
