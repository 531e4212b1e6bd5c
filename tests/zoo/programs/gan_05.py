"""Wasserstein model of daily eruption-plume profiles (1-D curves)."""

import argparse
import math

import torch
import torch.nn as nn

LENGTH = 64


def plume_profiles(n, gen):
    z = torch.linspace(0, 1, LENGTH)
    top = 0.4 + 0.5 * torch.rand(n, 1, generator=gen)
    width = 0.05 + 0.1 * torch.rand(n, 1, generator=gen)
    double = (torch.rand(n, 1, generator=gen) < 0.4).float()
    main = torch.exp(-((z - top) ** 2) / (2 * width**2))
    low = torch.exp(-((z - top * 0.45) ** 2) / (2 * (0.6 * width) ** 2))
    ripple = 0.05 * torch.sin(2 * math.pi * (6 * z + torch.rand(n, 1, generator=gen)))
    return main + 0.6 * double * low + ripple * main


class Generator(nn.Module):
    def __init__(self, nz, width):
        super().__init__()
        self.nz = nz
        self.fc = nn.Linear(nz, width * 8)
        self.up = nn.Sequential(
            nn.Unflatten(1, (width, 8)),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(width, 1, 5, padding=2),
        )

    def forward(self, n):
        return self.up(self.fc(torch.randn(n, self.nz))).squeeze(1)


class Critic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 5, 2, 2),
            nn.LeakyReLU(0.2),
            nn.Conv1d(width, width, 5, 2, 2),
            nn.LeakyReLU(0.2),
            nn.Conv1d(width, width, 5, 2, 2),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(width * 8, 1),
        )

    def forward(self, x):
        return self.net(x.unsqueeze(1)).squeeze(1)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    point = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
    return (grad.norm(dim=1) - 1).pow(2).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=20000)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--critic-steps", type=int, default=5)
    ap.add_argument("--penalty", type=float, default=10.0)
    ap.add_argument("--lr", type=float, default=2e-4)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(77)
    gen = torch.Generator().manual_seed(77)
    maker, critic = Generator(16, 32), Critic(32)
    opt_m = torch.optim.Adam(maker.parameters(), lr=args.lr, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.0, 0.9))

    for step in range(1, args.steps + 1):
        critic.requires_grad_(True)
        for _ in range(args.critic_steps):
            real = plume_profiles(args.batch, gen)
            with torch.no_grad():
                fake = maker(args.batch)
            gap = critic(real).mean() - critic(fake).mean()
            gp = gradient_penalty(critic, real, fake)
            opt_c.zero_grad(set_to_none=True)
            (-gap + args.penalty * gp).backward()
            opt_c.step()

        critic.requires_grad_(False)
        loss = -critic(maker(args.batch)).mean()
        opt_m.zero_grad(set_to_none=True)
        loss.backward()
        opt_m.step()

        if step % 10 == 0:
            print(
                f"step {step} critic {(-gap + args.penalty * gp).item():+.4f} gap {gap.item():.4f} "
                f"gp {gp.item():.4f} maker {loss.item():+.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
