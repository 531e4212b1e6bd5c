# Generate 16x16 runes: strokes on a dark plate.
import argparse

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

torch.set_num_threads(1)


def draw_runes(n, seed):
    rng = np.random.default_rng(seed)
    plates = np.full((n, 16, 16), -1.0, dtype=np.float32)
    for plate in plates:
        col = rng.integers(4, 12)
        plate[2:14, col] = 1.0
        for _ in range(rng.integers(1, 4)):
            row = rng.integers(2, 13)
            reach = rng.integers(2, 6)
            side = rng.choice([-1, 1])
            for k in range(reach):
                r, c = row + k // 2, col + side * k
                if 0 <= r < 16 and 0 <= c < 16:
                    plate[r, c] = 1.0
    plates += rng.normal(0, 0.05, plates.shape).astype(np.float32)
    return torch.from_numpy(plates).clamp(-1, 1).unsqueeze(1)


class Painter(nn.Module):
    def __init__(self, nz, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(nz, width * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Judge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(width, width * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(width * 2, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.net(x).flatten()


def init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)


def judge_step(judge, painter, opt, real, z):
    real_logit = judge(real)
    fake_logit = judge(painter(z).detach())
    loss = bce(real_logit, torch.full_like(real_logit, 0.9)) + bce(
        fake_logit, torch.zeros_like(fake_logit)
    )
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item(), real_logit.sigmoid().mean().item(), fake_logit.sigmoid().mean().item()


def painter_step(judge, painter, opt, z):
    logit = judge(painter(z))
    loss = bce(logit, torch.ones_like(logit))
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=20000)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--nz", type=int, default=32)
    ap.add_argument("--width", type=int, default=48)
    ap.add_argument("--lr", type=float, default=2e-4)
    args = ap.parse_args()

    torch.manual_seed(7)
    runes = draw_runes(4000, seed=7)
    painter = Painter(args.nz, args.width).apply(init)
    judge = Judge(args.width).apply(init)
    opt_p = torch.optim.Adam(painter.parameters(), lr=args.lr, betas=(0.5, 0.999))
    opt_j = torch.optim.Adam(judge.parameters(), lr=args.lr, betas=(0.5, 0.999))

    for step in range(1, args.steps + 1):
        real = runes[torch.randint(len(runes), (args.batch,))]
        j, p_real, p_fake = judge_step(
            judge, painter, opt_j, real, torch.randn(args.batch, args.nz)
        )
        g = painter_step(judge, painter, opt_p, torch.randn(args.batch, args.nz))
        if step % 20 == 0:
            print(
                f"step {step} judge {j:.3f} painter {g:.3f} D(x) {p_real:.2f} D(G(z)) {p_fake:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
