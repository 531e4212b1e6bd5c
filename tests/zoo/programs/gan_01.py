"""GAN on a two-dimensional mixture, embedded into a larger space."""

import numpy as np
import torch
from torch import nn


def mixture(count, rng):
    centres = rng.normal(size=(8, 64)) * 2
    return centres[rng.integers(0, 8, count)] + 0.1 * rng.normal(size=(count, 64))


class Generator(nn.Module):
    def __init__(self, noise=32, width=384):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(noise, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, 64),
        )

    def forward(self, noise):
        return self.layers(noise)


class Critic(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, 1),
        )

    def forward(self, points):
        return self.layers(points)


def main():
    torch.manual_seed(88)
    rng = np.random.default_rng(88)
    points = torch.from_numpy(mixture(20_000, rng))
    generator = Generator().to(points.dtype)
    critic = Critic().to(points.dtype)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9))
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.9))
    loss_fn = nn.BCEWithLogitsLoss()
    ones = torch.ones(256, 1, dtype=points.dtype)
    for step in range(1_000_000):
        real = points[torch.randint(0, len(points), (256,))]
        fake = generator(torch.randn(256, 32, dtype=points.dtype))
        c_loss = loss_fn(critic(real), ones) + loss_fn(critic(fake.detach()), ones * 0)
        c_optimizer.zero_grad()
        c_loss.backward()
        c_optimizer.step()
        g_loss = loss_fn(critic(fake), ones)
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        if step % 20 == 0:
            print(
                f"step {step} critic {c_loss.item():.3f} generator {g_loss.item():.3f}", flush=True
            )


if __name__ == "__main__":
    main()
