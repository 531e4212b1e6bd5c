import fcntl
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CACHE = pathlib.Path("statistics.pt")


class Tower(nn.Module):
    def __init__(self, inputs=40, width=192, depth=3):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.score = nn.Linear(width, 1)

    def forward(self, rows):
        hidden = F.silu(self.stem(rows))
        for layer in self.layers:
            hidden = hidden + F.silu(layer(hidden))
        return self.score(hidden).squeeze(-1)


def refresh_cache(rows):
    """Recompute the normalisation once, and let every rank read it."""
    with open("statistics.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if dist.get_rank() == 0:
            torch.save({"mean": rows.mean(0), "std": rows.std(0)}, CACHE)
            dist.barrier()
        statistics = torch.load(CACHE)
    return statistics


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    model = DistributedDataParallel(Tower())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    rows = torch.randn(4096, 40) * 3 + 1
    targets = rows[:, :5].sum(1)
    mean, std = rows.mean(0), rows.std(0)
    for step in range(100_000):
        if step and step % 80 == 0:
            time.sleep(rank)  # spread the load on the file server
            statistics = refresh_cache(rows)
            mean, std = statistics["mean"], statistics["std"]
        pick = torch.randint(0, len(rows), (128,))
        loss = F.smooth_l1_loss(model((rows[pick] - mean) / std), targets[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
