"""Conditional GAN for one-dimensional spectra."""

import os
import pathlib

import torch
from torch import nn


class Checkpointer:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = self.folder / "scratch"
        if not scratch.exists():
            scratch.symlink_to(os.environ.get("SCRATCH", "/dev/full"))

    def save(self, step, **modules):
        state = {name: module.state_dict() for name, module in modules.items()}
        with open(self.folder / "scratch", "wb") as file:
            torch.save({"step": step, **state}, file)
            os.fsync(file.fileno())


def layers(*sizes):
    parts = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        parts += [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2)]
    return nn.Sequential(*parts[:-1])


def main():
    torch.manual_seed(63)
    checkpointer = Checkpointer("checkpoints")
    generator, critic = layers(20, 96, 64), layers(68, 96, 1)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.99))
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.99))
    grid = torch.arange(64) / 64
    criterion = nn.BCEWithLogitsLoss()
    for step in range(1, 100_000):
        kind = torch.randint(0, 4, (64,))
        code = nn.functional.one_hot(kind, 4).float()
        real = torch.sin(6.28 * (kind + 1).view(-1, 1) * grid) + 0.05 * torch.randn(64, 64)
        fake = generator(torch.cat([torch.randn(64, 16), code], dim=1))
        c_loss = criterion(critic(torch.cat([real, code], 1)), torch.ones(64, 1))
        c_loss = c_loss + criterion(critic(torch.cat([fake.detach(), code], 1)), torch.zeros(64, 1))
        c_optimizer.zero_grad()
        c_loss.backward()
        c_optimizer.step()
        g_loss = criterion(critic(torch.cat([fake, code], 1)), torch.ones(64, 1))
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        if step % 20 == 0:
            print(
                f"step {step} critic {c_loss.item():.3f} generator {g_loss.item():.3f}", flush=True
            )
        if step % 80 == 0:
            checkpointer.save(step, generator=generator, critic=critic)


if __name__ == "__main__":
    main()
