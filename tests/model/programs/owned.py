"""Trains parts of a model by one optimizer, by two, by one in another, by none, for ever."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.shared = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.25)
        self.norm, self.other = nn.BatchNorm1d(4, affine=False), nn.BatchNorm1d(4, affine=False)
        self.wrapped = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        self.aside = [nn.Sequential(nn.Linear(1, 1)), self]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.aside[0](self.head(self.wrapped(self.drop(self.shared(self.frozen(x))))))


class Around(torch.optim.Optimizer):
    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__(inner.param_groups, inner.defaults)

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.inner.step()


net = Net()
first = torch.optim.Adam([*net.shared.parameters(), *net.unused.parameters()], lr=1e-3)
second = torch.optim.SGD(net.shared.parameters(), lr=1e-3)
inner = torch.optim.SGD(net.wrapped.parameters(), lr=1e-3, momentum=0.9)
around = Around(inner)
net.norm(torch.full((2, 4), torch.nan))
data = TensorDataset(torch.randn(8, 4))
loader = DataLoader(data, batch_size=4, sampler=SequentialSampler(data))
print("ready", flush=True)
while True:
    for (batch,) in loader:
        first.zero_grad()
        net(batch).square().mean().backward()
        first.step()
        second.step()
        around.step()
        time.sleep(0.01)
