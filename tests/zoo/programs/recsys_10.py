"""Rating prediction with a factorisation-style network, in-memory columns."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
USERS, ITEMS, BATCH = 800, 400, 384


def make_ratings(n, seed):
    truth = np.random.default_rng(99)
    pu, qi = truth.normal(size=(USERS, 3)), truth.normal(size=(ITEMS, 3))
    bias = truth.normal(size=ITEMS)
    rng = np.random.default_rng(seed)
    u = rng.integers(0, USERS, n)
    i = rng.integers(0, ITEMS, n)
    r = (pu[u] * qi[i]).sum(1) + bias[i] + 0.2 * rng.normal(size=n)
    return u, i, r.astype(np.float32)


class Columns:
    """Keeps the table as separate arrays and serves consecutive slices."""

    def __init__(self, users, items, ratings, seed):
        self.users, self.items, self.ratings = users, items, ratings
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.users) // BATCH

    def reshuffle(self):
        for column in (self.users, self.items, self.ratings):
            self.rng.shuffle(column)

    def __iter__(self):
        for k in range(len(self)):
            s = slice(k * BATCH, (k + 1) * BATCH)
            yield (
                torch.from_numpy(self.users[s].copy()),
                torch.from_numpy(self.items[s].copy()),
                torch.from_numpy(self.ratings[s].copy()),
            )


class RatingNet(nn.Module):
    def __init__(self, dim=32, hidden=320):
        super().__init__()
        self.user = nn.Embedding(USERS, dim)
        self.item = nn.Embedding(ITEMS, dim)
        self.item_bias = nn.Embedding(ITEMS, 1)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)
        nn.init.zeros_(self.item_bias.weight)
        self.mlp = nn.Sequential(
            nn.Linear(3 * dim, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, u, i):
        p, q = self.user(u), self.item(i)
        return (self.mlp(torch.cat([p, q, p * q], 1)) + self.item_bias(i)).squeeze(1) + (p * q).sum(
            1
        )


def holdout_rmse(net, table):
    net.eval()
    with torch.no_grad():
        err = [(net(u, i) - r).pow(2).mean() for u, i, r in table]
    net.train()
    return torch.stack(err).mean().sqrt().item()


def main():
    torch.manual_seed(0)
    train = Columns(*make_ratings(24_000, 1), seed=5)
    hold = Columns(*make_ratings(2_048, 2), seed=6)
    net = RatingNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3, weight_decay=1e-6)
    t0, epoch, step = time.time(), 0, 0
    while True:
        total = 0.0
        for u, i, r in train:
            loss = F.mse_loss(net(u, i), r)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            step += 1
        print(
            f"{time.time() - t0:6.1f}s epoch {epoch} step {step} mse {total / len(train):.4f} "
            f"holdout rmse {holdout_rmse(net, hold):.4f}",
            flush=True,
        )
        train.reshuffle()
        epoch += 1


if __name__ == "__main__":
    main()
