"""A training whose names live in the locals of a function."""

from __future__ import annotations

import time

import torch


def main() -> None:
    network = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(network.parameters(), lr=0.25)
    counter = 0
    print("ready", flush=True)
    while True:
        network(torch.ones(2)).sum().backward()
        sgd.step()
        sgd.zero_grad()
        counter += 1
        time.sleep(0.002)


if __name__ == "__main__":
    main()
