"""Tabular regression with entity embeddings; a thread collects the curves for a dashboard."""

import collections
import statistics
import threading

import torch
from torch import nn

torch.manual_seed(5)
torch.set_num_threads(1)

CARDINALITY = [50, 12, 200, 7]
NUMERIC = 24


class CurveCollector:
    """Takes what the loop posts and keeps a smoothed curve per name."""

    def __init__(self, window=50):
        self.pending = collections.deque()
        self.curves = collections.defaultdict(lambda: collections.deque(maxlen=window))
        self.summary = {}
        self.running = True
        self.thread = threading.Thread(target=self.collect, name="curves", daemon=True)
        self.thread.start()

    def post(self, name, value):
        self.pending.append((name, value))

    def collect(self):
        while self.running:
            if not self.pending:
                continue
            name, value = self.pending.popleft()
            curve = self.curves[name]
            curve.append(value)
            self.summary[name] = statistics.fmean(curve)


class Houses:
    def __init__(self, n=20000):
        g = torch.Generator().manual_seed(77)
        self.cat = torch.stack([torch.randint(c, (n,), generator=g) for c in CARDINALITY], 1)
        self.num = torch.randn(n, NUMERIC, generator=g)
        effect = [torch.randn(c, generator=g) for c in CARDINALITY]
        w = torch.randn(NUMERIC, generator=g) / NUMERIC**0.5
        y = sum(e[self.cat[:, k]] for k, e in enumerate(effect))
        self.y = y + torch.tanh(self.num @ w) * 2 + 0.3 * torch.randn(n, generator=g)

    def batches(self, size, g):
        while True:
            for idx in torch.randperm(len(self.y), generator=g).split(size):
                yield self.cat[idx], self.num[idx], self.y[idx]


class TabularNet(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.offsets = torch.tensor([0] + CARDINALITY[:-1]).cumsum(0)
        self.embed = nn.Embedding(sum(CARDINALITY), 16)
        self.mlp = nn.Sequential(
            nn.Linear(16 * len(CARDINALITY) + NUMERIC, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, cat, num):
        e = self.embed(cat + self.offsets).flatten(1)
        return self.mlp(torch.cat([e, num], 1)).squeeze(1)


def main():
    data, model = Houses(), TabularNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.MSELoss()
    curves = CurveCollector()
    for step, (cat, num, y) in enumerate(data.batches(512, torch.Generator().manual_seed(1)), 1):
        loss = criterion(model(cat, num), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        curves.post("loss", loss.item())
        if step % 20 == 0:
            print(f"step {step} loss {curves.summary.get('loss', float('nan')):.4f}", flush=True)


if __name__ == "__main__":
    main()
