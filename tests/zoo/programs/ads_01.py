"""Two towers for advertisements: clicked ads against sampled ones, drawn by how often they are shown."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ADS, USERS, NEGATIVES = 60_000, 4_000, 20


class Tower(nn.Module):
    def __init__(self, count, width=32):
        super().__init__()
        self.table = nn.Embedding(count, width, sparse=True)
        nn.init.normal_(self.table.weight, std=0.05)
        self.mix = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, ids):
        rows = self.table(ids)
        return rows + self.mix(rows)


class Impressions:
    """Clicks, and for each as many ads that were shown but not clicked."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        shown = 1.0 / np.arange(10, ADS + 10) ** 0.9
        self.shown = shown / shown.sum()
        self.taste = self.rng.integers(0, 200, USERS)

    def clicks(self, count):
        users = self.rng.integers(0, USERS, count)
        ads = (self.taste[users] * 3 + self.rng.integers(0, 3, count)) % ADS
        return users, ads

    def negatives(self, count):
        rows = [self.rng.choice(ADS, NEGATIVES, replace=False, p=self.shown) for _ in range(count)]
        return np.stack(rows)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(44)
    impressions = Impressions(44)
    users, ads = Tower(USERS), Tower(ADS)
    tables = [users.table.weight, ads.table.weight]
    dense = [*users.mix.parameters(), *ads.mix.parameters()]
    sparse_optimizer = torch.optim.SparseAdam(tables, lr=5e-3)
    dense_optimizer = torch.optim.AdamW(dense, lr=1e-3)
    for step in range(100_000):
        who, clicked = impressions.clicks(64)
        others = impressions.negatives(64)
        candidates = torch.from_numpy(np.concatenate([clicked[:, None], others], axis=1))
        query = users(torch.from_numpy(who))
        scores = (ads(candidates) * query[:, None]).sum(-1)
        loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        sparse_optimizer.zero_grad()
        dense_optimizer.zero_grad()
        loss.backward()
        sparse_optimizer.step()
        dense_optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
