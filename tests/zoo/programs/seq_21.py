"""Activity recognition from accelerometer windows with a residual 1-D conv net."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)
torch.set_num_threads(1)

CHANNELS, LENGTH, ACTIVITIES = 6, 128, 8


def record(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(ACTIVITIES, (n,), generator=g)
    t = torch.linspace(0, 1, LENGTH)
    freq = (2.0 + 1.1 * y.float())[:, None, None] + 0.5 * torch.randn(n, 1, 1, generator=g)
    phase = 2 * math.pi * torch.rand(n, CHANNELS, 1, generator=g)
    gain = 0.3 + torch.rand(n, CHANNELS, 1, generator=g)
    x = gain * torch.sin(2 * math.pi * freq * t + phase) + 1.2 * torch.randn(
        n, CHANNELS, LENGTH, generator=g
    )
    return TensorDataset(x * 3 + 5, y)


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv1d(width, width, 5, padding=2),
            nn.BatchNorm1d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class SensorNet(nn.Module):
    def __init__(self, width=40, blocks=3, dropout=0.3):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, stride=2, padding=3), nn.BatchNorm1d(width), nn.ReLU()
        )
        self.blocks = nn.Sequential(*[Block(width, dropout) for _ in range(blocks)])
        self.classify = nn.Linear(width, ACTIVITIES)

    def forward(self, x):
        return self.classify(self.blocks(self.stem(x)).mean(-1))


class Trainer:
    def __init__(self, model, train_set, valid_set, validate_every=200):
        self.model = model
        self.loader = DataLoader(
            train_set,
            batch_size=32,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(8),
        )
        self.valid = DataLoader(valid_set, batch_size=128)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.validate_every = validate_every
        self.step = 0
        self.best = 0.0

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        right = total = 0
        for x, y in self.valid:
            right += (self.model(x).argmax(-1) == y).sum().item()
            total += len(y)
        self.best = max(self.best, right / total)
        return right / total

    def fit(self):
        self.model.train()
        while True:
            for x, y in self.loader:
                self.step += 1
                loss = self.criterion(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if self.step % 25 == 0:
                    print(
                        f"step {self.step} loss {loss.item():.4f} best {self.best:.3f}", flush=True
                    )
                if self.step % self.validate_every == 0:
                    print(f"validation at step {self.step}: {self.validate():.3f}", flush=True)


if __name__ == "__main__":
    Trainer(SensorNet(), record(8000, seed=1), record(600, seed=2)).fit()
