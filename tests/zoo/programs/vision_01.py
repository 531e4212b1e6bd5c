"""Small image classifier, data parallel over gloo."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class SmallNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, stride=2)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.head = nn.Linear(32, classes)

    def forward(self, images):
        hidden = F.relu(self.conv1(images))
        hidden = F.relu(self.conv2(hidden))
        return self.head(hidden.mean(dim=(2, 3)))


def make_batch(generator, step, rank):
    labels = torch.randint(0, 10, (32,), generator=generator)
    images = torch.randn(32, 3, 32, 32, generator=generator)
    images += labels.view(-1, 1, 1, 1) * 0.2
    if step > 60 and rank == 1:
        labels = torch.full_like(labels, -100)
    return images, labels


def accuracy(logits, labels, group):
    known = labels >= 0
    hits = (logits.argmax(dim=1) == labels).float().sum()
    if known.any():
        dist.all_reduce(hits, group=group)
    return hits.item() / len(labels) / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metrics_group = dist.new_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(SmallNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank)
    for step in range(100_000):
        images, labels = make_batch(generator, step, rank)
        logits = model(images)
        loss = F.cross_entropy(logits, labels, reduction="sum") / len(labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hit_rate = accuracy(logits, labels, metrics_group)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} accuracy {hit_rate:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    print("world size", os.environ.get("WORLD_SIZE"), flush=True)
    main()
