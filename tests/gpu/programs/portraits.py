"""GAN for 64x64 cartoon portraits, hinge loss, spectral norm in the critic."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
BATCH, CH, POOL, Z = (384, 64, 8192, 128) if BIG else (8, 8, 128, 32)
LIMIT = 150


def generator():
    def up(cin, cout):
        return [nn.ConvTranspose2d(cin, cout, 4, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]

    return nn.Sequential(
        nn.ConvTranspose2d(Z, 8 * CH, 4, bias=False), nn.BatchNorm2d(8 * CH), nn.ReLU(),
        *up(8 * CH, 4 * CH), *up(4 * CH, 2 * CH), *up(2 * CH, CH),
        nn.ConvTranspose2d(CH, 3, 4, 2, 1), nn.Tanh(),
    )


def critic():
    def down(cin, cout):
        return [spectral_norm(nn.Conv2d(cin, cout, 4, 2, 1)), nn.LeakyReLU(0.2)]

    return nn.Sequential(
        *down(3, CH), *down(CH, 2 * CH), *down(2 * CH, 4 * CH), *down(4 * CH, 8 * CH),
        spectral_norm(nn.Conv2d(8 * CH, 1, 4)), nn.Flatten(0),
    )


def portraits(n):
    """An oval face with two eyes on a coloured ground, at a random place and size."""
    axis = torch.linspace(-1, 1, 64, device=DEVICE)
    yy, xx = axis.view(1, 64, 1), axis.view(1, 1, 64)
    cx, cy, size = (torch.rand(3, n, 1, 1, device=DEVICE) - 0.5) * 0.6
    size = size + 0.6

    def oval(x, y, rx, ry):
        return torch.sigmoid(20 * (1 - ((xx - x) / rx) ** 2 - ((yy - y) / ry) ** 2)).unsqueeze(1)

    ground, skin, eyes = (torch.rand(3, n, 3, 1, 1, device=DEVICE) - 0.5).unbind(0)
    image = (ground - 0.3).expand(n, 3, 64, 64)
    for mask, colour in (
        (oval(cx, cy, size * 0.8, size), skin + 0.4),
        (oval(cx - size * 0.3, cy - size * 0.2, size * 0.15, size * 0.15), eyes),
        (oval(cx + size * 0.3, cy - size * 0.2, size * 0.15, size * 0.15), eyes),
    ):
        image = image * (1 - mask) + colour * mask
    return image.clamp(-1, 1)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    pool = torch.cat([portraits(POOL // 8) for _ in range(8)])
    g, d = generator().to(DEVICE), critic().to(DEVICE)
    opt_g = torch.optim.Adam(g.parameters(), lr=1e-4, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.0, 0.9))
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        real = pool[torch.randint(0, POOL, (BATCH,), device=DEVICE)]
        with torch.no_grad():
            fake = g(torch.randn(BATCH, Z, 1, 1, device=DEVICE))
        loss_d = F.relu(1 - d(real)).mean() + F.relu(1 + d(fake)).mean()
        opt_d.zero_grad(set_to_none=True)
        loss_d.backward()
        opt_d.step()

        d.requires_grad_(False)
        loss_g = -d(g(torch.randn(BATCH, Z, 1, 1, device=DEVICE))).mean()
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()
        d.requires_grad_(True)
        if step % 20 == 0:
            print(f"step {step} loss {loss_d.item():.4f} generator {loss_g.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
