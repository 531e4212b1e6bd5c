"""Graph network for node labels; every rank trains on its own sampled nodes."""

import fcntl
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

NODES, FEATURES, CLASSES, FANOUT, BATCH = 3000, 32, 6, 8, 192
REFRESH = 600


def make_graph():
    rng = np.random.default_rng(9)
    labels = rng.integers(0, CLASSES, NODES)
    centres = rng.normal(size=(CLASSES, FEATURES))
    features = 0.2 * centres[labels] + rng.normal(size=(NODES, FEATURES))
    friends = []
    for node in range(NODES):
        same = np.flatnonzero(labels == labels[node])
        friends.append(np.concatenate([rng.choice(same, 8), rng.integers(0, NODES, 12)]))
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels), np.stack(friends)


class SampleTable:
    """Sampled neighbours of every node, drawn once and shared between ranks over a file."""

    def __init__(self, friends, rank):
        self.friends, self.rank = friends, rank
        self.path = os.path.join(
            tempfile.gettempdir(), f"neighbours_{os.environ['MASTER_PORT']}.npy"
        )
        self.table = torch.from_numpy(friends[:, :FANOUT].copy())

    def refresh(self, round_number):
        with open(self.path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.rank == 0:
                rng = np.random.default_rng(round_number)
                np.save(self.path, rng.permuted(self.friends, axis=1)[:, :FANOUT])
            dist.barrier()
            self.table = torch.from_numpy(np.load(self.path))


class Sage(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.own1, self.near1 = nn.Linear(FEATURES, width), nn.Linear(FEATURES, width)
        self.own2, self.near2 = nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, CLASSES)

    def layer1(self, x, table, nodes):
        return F.relu(self.own1(x[nodes]) + self.near1(x[table[nodes]].mean(-2)))

    def forward(self, x, table, nodes):
        near = table[nodes]
        hidden = self.layer1(x, table, nodes)
        around = self.layer1(x, table, near).mean(1)
        return self.out(F.relu(self.own2(hidden) + self.near2(around)))


def average_gradients(model, world):
    flat = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for parameter in model.parameters():
        size = parameter.numel()
        parameter.grad.copy_(flat[start : start + size].view_as(parameter))
        start += size


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    x, labels, friends = make_graph()
    model = Sage()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    table = SampleTable(friends, rank)
    own = torch.arange(rank, NODES, world)
    generator = torch.Generator().manual_seed(100 + rank)
    for step in range(1, 200_000):
        if step % REFRESH == 0:
            table.refresh(step // REFRESH)
        nodes = own[torch.randint(0, len(own), (BATCH,), generator=generator)]
        loss = F.cross_entropy(model(x, table.table, nodes), labels[nodes])
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world)
        optimizer.step()
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
