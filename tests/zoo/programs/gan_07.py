"""Wasserstein GAN with gradient penalty on rings of points drawn as small images."""

import time

import torch
from torch import nn

SIZE, LATENT, BATCH, N_CRITIC, PENALTY = 16, 24, 32, 5, 10.0
MAX_SECONDS = 600


def real_images(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    c = 0.8 * (torch.rand(n, 2, 1, 1) - 0.5)
    r = 0.3 + 0.3 * torch.rand(n, 1, 1)
    d = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2).sqrt()
    return (2 * torch.exp(-(((d - r) / 0.12) ** 2)) - 1)[:, None]


class Generator(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.w = w
        self.start = nn.Linear(LATENT, 2 * w * 16)
        self.net = nn.Sequential(
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * w, w, 3, padding=1),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(w, 1, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(self.start(z).view(-1, 2 * self.w, 4, 4))


def critic(w=24):
    return nn.Sequential(
        nn.Conv2d(1, w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(w, 2 * w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * w * 16, 1),
    )


def gradient_penalty(net, real, fake):
    mix = torch.rand(len(real), 1, 1, 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return ((grad.flatten(1).norm(dim=1) - 1) ** 2).mean()


def main():
    torch.manual_seed(1)
    gen, net = Generator(), critic()
    opt_g = torch.optim.Adam(gen.parameters(), lr=3e-4, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(net.parameters(), lr=3e-4, betas=(0.0, 0.9))
    deadline, it = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        for _ in range(N_CRITIC):
            real = real_images(BATCH)
            with torch.no_grad():
                fake = gen(torch.randn(BATCH, LATENT))
            distance = net(real).mean() - net(fake).mean()
            c_loss = -distance + PENALTY * gradient_penalty(net, real, fake)
            opt_c.zero_grad(set_to_none=True)
            c_loss.backward()
            opt_c.step()
        for p in net.parameters():
            p.requires_grad_(False)
        g_loss = -net(gen(torch.randn(BATCH, LATENT))).mean()
        opt_g.zero_grad(set_to_none=True)
        g_loss.backward()
        opt_g.step()
        for p in net.parameters():
            p.requires_grad_(True)
        it += 1
        if it % 25 == 0:
            print(
                f"step {it} critic {c_loss.item():.3f} distance {distance.item():.3f} g {g_loss.item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
