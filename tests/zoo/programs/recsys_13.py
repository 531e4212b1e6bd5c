"""Two-tower recommender trained on implicit feedback, with a running AUC as progress metric."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_num_threads(1)

NUM_USERS, NUM_ITEMS, DIM, BATCH = 500, 300, 32, 512


class Interactions:
    """Users like items close to them in a hidden space of taste."""

    def __init__(self, seed=11):
        self.g = torch.Generator().manual_seed(seed)
        self.users = torch.randn(NUM_USERS, 6, generator=self.g)
        self.items = torch.randn(NUM_ITEMS, 6, generator=self.g)

    def batch(self, n):
        u = torch.randint(NUM_USERS, (n,), generator=self.g)
        i = torch.randint(NUM_ITEMS, (n,), generator=self.g)
        affinity = (self.users[u] * self.items[i]).sum(1)
        clicked = torch.rand(n, generator=self.g) < torch.sigmoid(affinity)
        return u, i, clicked.float()


class Tower(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.table = nn.Embedding(count, DIM)
        self.net = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, DIM))
        nn.init.normal_(self.table.weight, std=0.3)

    def forward(self, ids):
        x = self.table(ids)
        return x + self.net(x)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = Tower(NUM_USERS)
        self.item = Tower(NUM_ITEMS)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.bias


class AUC:
    def __init__(self):
        self.scores, self.labels = [], []

    def update(self, scores, labels):
        self.scores.append(scores.detach())
        self.labels.append(labels)

    def compute(self):
        scores, labels = torch.cat(self.scores), torch.cat(self.labels)
        order = torch.argsort(scores)
        ranks = torch.empty_like(scores, dtype=torch.double)
        ranks[order] = torch.arange(1, len(scores) + 1, dtype=torch.double)
        pos = labels.sum().double()
        neg = len(labels) - pos
        return ((ranks[labels == 1].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


def main():
    data = Interactions()
    model = TwoTower()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    auc = AUC()
    smoothed = None
    for step in itertools.count(1):
        u, i, y = data.batch(BATCH)
        scores = model(u, i)
        loss = F.binary_cross_entropy_with_logits(scores, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        auc.update(scores, y)
        value = auc.compute()
        smoothed = value if smoothed is None else 0.98 * smoothed + 0.02 * value
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} auc {smoothed:.4f}", flush=True)


if __name__ == "__main__":
    main()
