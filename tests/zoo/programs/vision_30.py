"""Momentum contrast on shifted patterns."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def make_encoder(dim=64):
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, dim),
    )


class MoCo(nn.Module):
    def __init__(self, size=4096, momentum=0.99, temperature=0.1):
        super().__init__()
        self.query = make_encoder()
        self.key = copy.deepcopy(self.query)
        for parameter in self.key.parameters():
            parameter.requires_grad = False
        self.momentum, self.temperature = momentum, temperature
        self.register_buffer("queue", F.normalize(torch.randn(size, 64), dim=1))
        self.place = 0

    @torch.no_grad()
    def follow(self):
        for mine, theirs in zip(self.key.parameters(), self.query.parameters()):
            mine.lerp_(theirs, 1 - self.momentum)

    def forward(self, first, second):
        queries = F.normalize(self.query(first), dim=1)
        with torch.no_grad():
            self.follow()
            keys = F.normalize(self.key(second), dim=1)
        positive = (queries * keys).sum(1, keepdim=True)
        logits = torch.cat([positive, queries @ self.queue.clone().T], dim=1) / self.temperature
        self.queue[self.place : self.place + len(keys)] = keys
        self.place = (self.place + len(keys)) % len(self.queue)
        return F.cross_entropy(logits, torch.zeros(len(keys), dtype=torch.long))


def views(generator, count=32):
    pattern = torch.randn(count, 1, 30, 30, generator=generator)
    pattern = F.avg_pool2d(pattern, 5, stride=1)
    noise = torch.randn(2, *pattern.shape, generator=generator) * 0.05
    return pattern + noise[0], pattern.flip(3).flip(3) + noise[1]


def main():
    torch.manual_seed(93)
    generator = torch.Generator().manual_seed(93)
    model = MoCo()
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.03, momentum=0.9)
    for step in range(1_000_000):
        loss = model(*views(generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
