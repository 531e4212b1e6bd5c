"""Credit scoring with many missing fields."""

import torch
from torch import nn


class Impute(nn.Module):
    """A learned value, and a flag, for what is missing."""

    def __init__(self, columns):
        super().__init__()
        self.fill = nn.Parameter(torch.zeros(columns))

    def forward(self, rows):
        missing = torch.isnan(rows)
        filled = torch.where(missing, self.fill.expand_as(rows), torch.nan_to_num(rows))
        return torch.cat([filled, missing.float()], dim=1)


class Scoring(nn.Module):
    def __init__(self, columns=30, width=128):
        super().__init__()
        self.impute = Impute(columns)
        self.body = nn.Sequential(
            nn.Linear(2 * columns, width), nn.SELU(), nn.Linear(width, width), nn.SELU()
        )
        self.score = nn.Linear(width, 1)

    def forward(self, rows):
        return self.score(self.body(self.impute(rows))).squeeze(1)


def applications(generator, weights, count=256):
    rows = torch.randn(count, 30, generator=generator)
    default = torch.sigmoid(rows @ weights - 1)
    labels = torch.bernoulli(default, generator=generator)
    rows[torch.rand(rows.shape, generator=generator) < 0.25] = float("nan")
    return rows, labels


def main():
    torch.manual_seed(37)
    generator = torch.Generator().manual_seed(37)
    weights = torch.randn(30, generator=generator) * 0.5
    model = Scoring()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    average = None
    for step in range(1_000_000):
        rows, labels = applications(generator, weights)
        loss = nn.functional.binary_cross_entropy_with_logits(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.95 * average + 0.05 * loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {average:.4f}", flush=True)


if __name__ == "__main__":
    main()
