"""Load estimation for harbour cranes from strain and current channels."""

import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Settings:
    batch: int = 64
    window: int = 64
    channels: int = 6
    width: int = 64
    lr: float = 1e-3
    check_every: int = 40


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, 5, padding=2)
        self.norm = nn.BatchNorm1d(cout)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class LoadNet(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.body = nn.Sequential(
            Block(s.channels + 1, s.width),
            Block(s.width, s.width),
            nn.MaxPool1d(2),
            Block(s.width, 2 * s.width),
        )
        self.head = nn.Linear(2 * s.width, 1)

    def forward(self, x):
        return self.head(self.body(x).mean(-1)).squeeze(-1)


class Recorder:
    """Replays telemetry; a channel now and then reads flat zero when a cable is re-seated."""

    def __init__(self, s, seed):
        self.s = s
        self.g = torch.Generator().manual_seed(seed)
        self.mix = torch.randn(s.channels, generator=torch.Generator().manual_seed(2))

    def next(self, dropout_rate):
        s = self.s
        load = 1 + 4 * torch.rand(s.batch, generator=self.g)
        wave = torch.sin(torch.linspace(0, 12, s.window)) * 0.3
        noise = torch.randn(s.batch, s.channels, s.window, generator=self.g)
        x = self.mix[None, :, None] * load[:, None, None] + wave + 0.4 * noise
        x[:, 1] = 5 + 0.5 * load[:, None] + 0.2 * noise[:, 1]
        hit = torch.rand(s.batch, generator=self.g) < dropout_rate
        x[hit, 1] = 0.0
        ratio = x[:, 0:1] / x[:, 1:2]
        return torch.cat([x, ratio], 1), load


def validate(model, batches):
    model.eval()
    with torch.no_grad():
        err = [(model(x) - y).abs().mean() for x, y in batches]
    model.train()
    return torch.stack(err).mean().item()


def main():
    s = Settings()
    torch.manual_seed(0)
    model = LoadNet(s)
    opt = torch.optim.AdamW(model.parameters(), lr=s.lr)
    train, held = Recorder(s, 10), Recorder(s, 77)
    val_batches = [held.next(0.0) for _ in range(4)]
    best, skipped, step, t0 = float("inf"), 0, 0, time.time()
    while True:
        x, y = train.next(0.0004)
        step += 1
        loss = F.smooth_l1_loss(model(x), y)
        if not torch.isfinite(loss):
            skipped += 1
            continue
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % s.check_every == 0:
            mae = validate(model, val_batches)
            best = min(best, mae)
            print(
                f"{time.time() - t0:6.1f}s step {step} train {loss.item():.4f} val_mae {mae:.4f} "
                f"best {best:.4f} dropped {skipped}",
                flush=True,
            )


if __name__ == "__main__":
    main()
