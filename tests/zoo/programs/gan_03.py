"""DCGAN in miniature on round blobs."""

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, noise=24):
        super().__init__()
        self.start = nn.Linear(noise, 32 * 4 * 4)
        self.up = nn.Sequential(
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.up(self.start(noise).view(-1, 32, 4, 4))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
        )
        self.judge = nn.Linear(32 * 4 * 4, 1)

    def forward(self, images):
        return self.judge(nn.functional.leaky_relu(self.down(images), 0.2).flatten(1)).squeeze(1)


def blobs(generator, count=32):
    centre = torch.rand(count, 2, 1, 1, generator=generator) * 8 + 4
    ticks = torch.arange(16).float()
    rows = (ticks.view(1, -1, 1) - centre[:, 0]) ** 2
    columns = (ticks.view(1, 1, -1) - centre[:, 1]) ** 2
    return (2 * torch.exp(-(rows + columns) / 6) - 1).unsqueeze(1)


def main():
    torch.manual_seed(32)
    source = torch.Generator().manual_seed(32)
    generator, discriminator = Generator(), Discriminator()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    softplus = nn.functional.softplus
    for step in range(1_000_000):
        real = blobs(source)
        fake = generator(torch.randn(len(real), 24))
        d_loss = (
            softplus(-discriminator(real)).mean() + softplus(discriminator(fake.detach())).mean()
        )
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()
        g_loss = softplus(-discriminator(fake)).mean()
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        if step % 20 == 0:
            print(
                f"step {step} discriminator {d_loss.item():.3f} generator {g_loss.item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
