"""Two-tower click model over text logs, batches prepared by a background thread."""

import itertools
import queue
import threading

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(11)

USERS, ITEMS, SHARD_ROWS, BATCH = 2000, 800, 4096, 256


class ClickLog:
    """Rows as the collector writes them: user, item, price and click, separated by tabs."""

    def __init__(self, seed=5):
        rng = np.random.default_rng(seed)
        self.taste = rng.normal(size=(USERS, 6))
        self.style = rng.normal(size=(ITEMS, 6))
        self.price = rng.gamma(2.0, 10.0, size=ITEMS)
        self.quality = rng.normal(0.0, 2.0, size=ITEMS)

    def read_shard(self, number):
        rng = np.random.default_rng(1000 + number)
        users = rng.integers(0, USERS, SHARD_ROWS)
        items = rng.integers(0, ITEMS, SHARD_ROWS)
        score = 0.3 * (self.taste[users] * self.style[items]).sum(1)
        score += self.quality[items] - 0.02 * self.price[items]
        clicks = rng.random(SHARD_ROWS) < 1 / (1 + np.exp(-score))
        for row, (user, item, click) in enumerate(zip(users, items, clicks)):
            price = f"{self.price[item]:.2f}"
            if number == 40 and row == 3000:
                price = "n/a"
            yield f"{user}\t{item}\t{price}\t{int(click)}"


class Prefetcher:
    def __init__(self, log, batch_size, depth=4):
        self.log, self.batch_size = log, batch_size
        self.ready = queue.Queue(depth)
        self.error = None
        self.thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self.thread.start()

    def _parse(self, lines):
        columns = list(zip(*(line.split("\t") for line in lines)))
        users = torch.tensor([int(value) for value in columns[0]])
        items = torch.tensor([int(value) for value in columns[1]])
        price = torch.tensor([float(value) for value in columns[2]])
        click = torch.tensor([float(value) for value in columns[3]])
        return users, items, price, click

    def _fill(self):
        try:
            for shard in itertools.count():
                lines = []
                for line in self.log.read_shard(shard):
                    lines.append(line)
                    if len(lines) == self.batch_size:
                        self.ready.put(self._parse(lines))
                        lines = []
        except Exception as error:
            self.error = error

    def __iter__(self):
        return self

    def __next__(self):
        return self.ready.get()


class TwoTower(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.user_net = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, dim))
        self.item_net = nn.Sequential(nn.Linear(dim + 1, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, users, items, price):
        left = self.user_net(self.user(users))
        right = self.item_net(torch.cat([self.item(items), price[:, None] / 20], dim=1))
        return (left * right).sum(1)


def main():
    model = TwoTower()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.BCEWithLogitsLoss()
    batches = Prefetcher(ClickLog(), BATCH)
    average = None
    for step, (users, items, price, click) in enumerate(batches):
        loss = criterion(model(users, items, price), click)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {average:.4f}", flush=True)


if __name__ == "__main__":
    main()
