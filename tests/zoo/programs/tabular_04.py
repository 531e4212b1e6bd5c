import argparse
import os

import torch
from torch import nn


def configure(args):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[args.local_rank % len(cores)]})
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, hidden):
        return hidden + self.value(hidden) * torch.sigmoid(self.gate(hidden))


class TabularNet(nn.Module):
    def __init__(self, inputs=64, width=256, depth=4):
        super().__init__()
        self.inputs = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(*[Gated(width) for _ in range(depth)])
        self.output = nn.Linear(width, 1)

    def forward(self, rows):
        return self.output(self.blocks(self.inputs(rows))).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--local-rank", type=int, default=0)
    parser.add_argument("--seed", type=int, default=77)
    args = parser.parse_args()
    configure(args)
    model = TabularNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth = torch.randn(64)
    rows = torch.randn(8192, 64)
    targets = torch.tanh(rows @ truth)
    for epoch in range(1000):
        order = torch.randperm(len(rows))
        for step, picked in enumerate(order.split(512), epoch * 16):
            loss = nn.functional.mse_loss(model(rows[picked]), targets[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
