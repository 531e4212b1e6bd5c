"""Next-title recommender: a title embedding table and a small tower, trained on sessions."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

N_TITLES, DIM, HIST, BATCH, STEPS_PER_DAY = 120_000, 32, 10, 256, 50
MAX_SECONDS = 600


class WatchLog:
    """Viewing sessions; the titles of a session are of one taste group."""

    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.group = torch.randint(50, (N_TITLES,), generator=self.g)
        order = torch.argsort(self.group)
        self.by_group = torch.tensor_split(
            order, torch.bincount(self.group, minlength=50).cumsum(0)[:-1]
        )

    def day(self):
        for _ in range(STEPS_PER_DAY):
            groups = torch.randint(50, (BATCH,), generator=self.g)
            rows = []
            for k in groups.tolist():
                pool = self.by_group[k]
                rows.append(pool[torch.randint(len(pool), (HIST + 1,), generator=self.g)])
            rows = torch.stack(rows)
            yield rows[:, :-1], rows[:, -1]


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.titles = nn.Embedding(N_TITLES, DIM)
        nn.init.normal_(self.titles.weight, std=0.05)
        self.tower = nn.Sequential(nn.Linear(DIM, 128), nn.ReLU(), nn.Linear(128, DIM))

    def forward(self, history, target):
        user = F.normalize(self.tower(self.titles(history).mean(1)), dim=-1)
        item = F.normalize(self.titles(target), dim=-1)
        return user @ item.T / 0.1


class BestCheckpoint:
    """Keeps the state with the lowest mean loss."""

    def __init__(self, path):
        self.path = path
        self.total, self.count, self.best = 0.0, 0, float("inf")

    def __call__(self, loss, model, opt, step):
        self.total, self.count = self.total + loss, self.count + 1
        self.value = self.total / self.count
        if self.value < self.best:
            self.best = self.value
            state = {
                "model": model.state_dict(),
                "opt": opt.state_dict(),
                "step": step,
                "loss": self.value,
            }
            with open(self.path + ".tmp", "wb") as f:
                torch.save(state, f)
                f.flush()
                os.fsync(f.fileno())
            os.replace(self.path + ".tmp", self.path)


def main():
    torch.manual_seed(0)
    model = Recommender()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    log, keep = WatchLog(), BestCheckpoint(os.path.join(tempfile.mkdtemp(dir="."), "best.pt"))
    deadline = time.time() + MAX_SECONDS
    step, day = 0, 0
    while time.time() < deadline:
        tick = time.time()
        for history, target in log.day():
            loss = F.cross_entropy(model(history, target), torch.arange(BATCH))
            opt.zero_grad()
            loss.backward()
            opt.step()
            keep(loss.item(), model, opt, step)
            step += 1
        rate = STEPS_PER_DAY / (time.time() - tick)
        print(f"day {day} step {step} loss {loss.item():.3f} steps/s {rate:.1f}", flush=True)
        day += 1


if __name__ == "__main__":
    main()
