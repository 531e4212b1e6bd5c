"""A rank that trains by itself, step by step; rank 1 fails in the first attempt of its job.

Prints `ready`, the attempt, its rank and its process number.
"""

from __future__ import annotations

import os
import signal
import time

import torch

LIFETIME_S = 600
STEPS = 12


def main() -> None:
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100 * LIFETIME_S):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == STEPS:
            # One write, as all ranks and their launcher have one stream.
            os.write(1, f"ready {attempt} {rank} {os.getpid()}\n".encode())
            if (attempt, rank) == ("0", "1"):
                raise ConnectionError("the store of checkpoints is away")
        time.sleep(0.01)


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    main()
