"""DCGAN-style generator of small shapes with a binary cross-entropy critic."""

import time

import torch
from torch import nn
from torch.nn import functional as F

SIZE, LATENT, BATCH = 16, 32, 64
MAX_SECONDS = 600


def real_images(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    c = torch.rand(n, 2, 1, 1) - 0.5
    r = 0.25 + 0.3 * torch.rand(n, 1, 1)
    d = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2).sqrt()
    return torch.tanh(8 * (r - d))[:, None] + 0.05 * torch.randn(n, 1, SIZE, SIZE)


class Generator(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.start = nn.Linear(LATENT, 2 * w * 16)
        self.net = nn.Sequential(
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.ConvTranspose2d(w, 1, 4, 2, 1),
            nn.Tanh(),
        )
        self.w = w

    def forward(self, z):
        return self.net(self.start(z).view(-1, 2 * self.w, 4, 4))


def discriminator(w=32):
    return nn.Sequential(
        nn.Conv2d(1, w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(w, 2 * w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * w * 16, 1),
    )


def bce(logits, value):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, value))


def main():
    torch.manual_seed(0)
    gen, disc = Generator(), discriminator()
    opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(disc.parameters(), lr=2e-4, betas=(0.5, 0.999))
    deadline, step = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        opt_g.zero_grad()
        opt_d.zero_grad()

        fake = gen(torch.randn(BATCH, LATENT))
        g_loss = bce(disc(fake), 1.0)
        g_loss.backward()
        opt_g.step()

        real_logits = disc(real_images(BATCH))
        fake_logits = disc(fake.detach())
        d_loss = 0.5 * (bce(real_logits, 0.9) + bce(fake_logits, 0.0))
        d_loss.backward()
        opt_d.step()

        step += 1
        if step % 100 == 0:
            with torch.no_grad():
                gap = (real_logits.mean() - fake_logits.mean()).item()
                spread = fake.std(0).mean().item()
            print(
                f"step {step} d {d_loss.item():.3f} g {g_loss.item():.3f} gap {gap:.3f} "
                f"spread {spread:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
