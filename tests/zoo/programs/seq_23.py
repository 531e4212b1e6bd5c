"""Anomaly scores for machine telemetry: a dilated causal conv net that predicts the next readings."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WINDOW, SENSORS, BATCH = 96, 5, 16


class Telemetry(Dataset):
    """One recording per machine and day; an item is a random window of it."""

    def __init__(self, recordings=12000, seed=20):
        g = torch.Generator().manual_seed(seed)
        self.length = (170 + 20 * torch.randn(recordings, generator=g)).long().clamp(max=240)
        self.phase = 6.28 * torch.rand(recordings, SENSORS, 1, generator=g)
        self.speed = 0.1 + 0.3 * torch.rand(recordings, 1, 1, generator=g)

    def __len__(self):
        return len(self.length)

    def __getitem__(self, i):
        t = torch.arange(int(self.length[i]))
        g = torch.Generator().manual_seed(i)
        wave = torch.sin(self.speed[i] * t + self.phase[i]) + 0.1 * torch.randn(
            SENSORS, len(t), generator=g
        )
        start = int(torch.randint(max(1, len(t) - WINDOW), (1,)))
        return wave[:, start : start + WINDOW]


class CausalConv(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, 1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class Predictor(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inp = nn.Conv1d(SENSORS, width, 1)
        self.layers = nn.Sequential(*[CausalConv(width, 2**k) for k in range(5)])
        self.out = nn.Conv1d(width, SENSORS, 1)

    def forward(self, x):
        return self.out(F.relu(self.layers(self.inp(x))))


def train():
    loader = DataLoader(
        Telemetry(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=1,
        drop_last=True,
        generator=torch.Generator().manual_seed(41),
    )
    model = Predictor()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    while True:
        for x in loader:
            step += 1
            loss = F.mse_loss(model(x[..., :-1]), x[..., 1:])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(16)
    torch.set_num_threads(1)
    train()
