"""Next-hour electricity load with an LSTM."""

import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


def make_series(n=30000, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n, dtype=torch.float32)
    y = (
        1.2 * torch.sin(2 * math.pi * t / 24)
        + 0.6 * torch.sin(2 * math.pi * t / 168)
        + 0.15 * torch.randn(n, generator=g)
    )
    temp = torch.cos(2 * math.pi * (t - 3) / 24) + 0.3 * torch.randn(n, generator=g)
    return torch.stack([y, temp, (t % 24) / 24, (t % 168) / 168], 1)


class Windows(Dataset):
    def __init__(self, series, length=72):
        self.s, self.n = series, length

    def __len__(self):
        return len(self.s) - self.n

    def __getitem__(self, i):
        return self.s[i : i + self.n], self.s[i + self.n, 0]


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.lstm = nn.LSTM(4, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Sequential(nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.head(out[:, -1])


class PinballPlusMSE(nn.Module):
    def __init__(self, q=0.5, w=0.2):
        super().__init__()
        self.q, self.w = q, w

    def forward(self, pred, target):
        err = target - pred
        pin = torch.maximum(self.q * err, (self.q - 1) * err)
        return (pin + self.w * err**2).mean()


def main():
    torch.manual_seed(0)
    series = make_series()
    train = DataLoader(Windows(series[:26000]), batch_size=64, shuffle=True, drop_last=True)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=8)
    crit = PinballPlusMSE()
    step = 0
    for epoch in range(300):
        total = 0.0
        for x, y in train:
            opt.zero_grad()
            loss = crit(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total += loss.item()
            step += 1
            if step == 1:
                print("ready", flush=True)
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        plateau.step(total / len(train))


if __name__ == "__main__":
    main()
