"""Churn model on tabular data: embeddings of categories and numeric columns, one-cycle schedule."""

import math

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

ROWS, BATCH, EPOCHS = 13_000, 256, 40
CATEGORICAL = {"plan": 6, "region": 40, "device": 120, "channel": 15}
NUMERIC = ["tenure", "spend", "calls", "tickets", "usage", "age"]


def make_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({c: rng.integers(k, size=ROWS) for c, k in CATEGORICAL.items()})
    for c in NUMERIC:
        frame[c] = rng.gamma(2.0, 10.0, size=ROWS)
    effect = {c: rng.normal(size=k) for c, k in CATEGORICAL.items()}
    z = sum(effect[c][frame[c]] for c in CATEGORICAL)
    z = z + 0.05 * (frame["tickets"] - frame["usage"]) - 0.03 * frame["tenure"]
    frame["churn"] = (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(int)
    return frame


def tensors(frame, mean, std):
    cats = torch.tensor(frame[list(CATEGORICAL)].to_numpy())
    nums = torch.tensor(((frame[NUMERIC] - mean) / std).to_numpy(), dtype=torch.float32)
    return TensorDataset(cats, nums, torch.tensor(frame["churn"].to_numpy(), dtype=torch.float32))


class ChurnNet(nn.Module):
    def __init__(self, dim=16, width=384):
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(k, dim) for k in CATEGORICAL.values()])
        layers, n = [], dim * len(CATEGORICAL) + len(NUMERIC)
        for _ in range(3):
            layers += [nn.Linear(n, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2)]
            n = width
        self.net = nn.Sequential(*layers, nn.Linear(n, 1))

    def forward(self, cats, nums):
        parts = [e(cats[:, k]) for k, e in enumerate(self.embeds)]
        return self.net(torch.cat([*parts, nums], 1)).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = [F.binary_cross_entropy_with_logits(model(c, n), y) for c, n, y in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    frame = make_frame()
    train, valid = frame.iloc[:-2000], frame.iloc[-2000:]
    mean, std = train[NUMERIC].mean(), train[NUMERIC].std()
    loader = DataLoader(tensors(train, mean, std), batch_size=BATCH, shuffle=True)
    val_loader = DataLoader(tensors(valid, mean, std), batch_size=1000)
    model = ChurnNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    steps_per_epoch = math.floor(len(train) / BATCH)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=4e-3, epochs=EPOCHS, steps_per_epoch=steps_per_epoch, pct_start=0.2
    )
    for epoch in range(EPOCHS):
        for cats, nums, y in loader:
            loss = F.binary_cross_entropy_with_logits(model(cats, nums), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        print(
            f"epoch {epoch} step {sched.last_epoch} loss {loss.item():.4f} val {validate(model, val_loader):.4f} "
            f"lr {sched.get_last_lr()[0]:.2e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
