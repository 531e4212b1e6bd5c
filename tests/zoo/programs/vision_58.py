"""Residual network on small images, DistributedDataParallel over two processes."""

import os
import signal
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

N, CLASSES, SIZE, BATCH = 4000, 10, 24, 16
MAX_SECONDS = 600


def make_dataset():
    g = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (N,), generator=g)
    prototypes = torch.randn(CLASSES, 3, SIZE, SIZE, generator=g)
    x = 0.25 * prototypes[y] + torch.randn(N, 3, SIZE, SIZE, generator=g)
    return TensorDataset(x, y)


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b1, self.b2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = (
            nn.Conv2d(i, o, 1, stride, bias=False) if (i, stride) != (o, 1) else nn.Identity()
        )

    def forward(self, x):
        h = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(h + self.skip(x))


def network(w=20):
    return nn.Sequential(
        Residual(3, w, 1),
        Residual(w, 2 * w, 2),
        Residual(2 * w, 4 * w, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * w, CLASSES),
    )


def build_loader(dataset, world):
    sampler = DistributedSampler(
        dataset,
        num_replicas=world,
        rank=int(os.environ.get("RANK", 0)),
        shuffle=True,
        drop_last=True,
    )
    return DataLoader(dataset, batch_size=BATCH, sampler=sampler, drop_last=True), sampler


def train(rank, world, port):
    signal.alarm(MAX_SECONDS + 20)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader, sampler = build_loader(make_dataset(), world)
    model = DDP(network())
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    started, step, epoch, stop = time.time(), 0, 0, False
    while not stop:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                flag = torch.tensor(float(time.time() - started > MAX_SECONDS))
                dist.broadcast(flag, 0)
                if rank == 0:
                    print(f"epoch {epoch} step {step} loss {mean.item() / world:.3f}", flush=True)
                if flag:
                    stop = True
                    break
        epoch += 1
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(train, args=(2, free_port()), nprocs=2)
