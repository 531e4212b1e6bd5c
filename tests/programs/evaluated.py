"""A training whose names live in a function, and a second thread with names of its own.

It ends after as many steps as its argument says, and prints how many these were and a digest of all
their losses.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


def idle(secret: int) -> None:
    while secret:
        time.sleep(0.01)


def main() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    sgd = torch.optim.SGD(network.parameters(), lr=0.05)
    plan = torch.optim.lr_scheduler.StepLR(sgd, 1_000_000)
    feed = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
    pause = 0.01
    limit, done, digest = int(sys.argv[1]), 0, hashlib.sha256()
    print("ready", flush=True)
    while done < limit:
        for x, y in feed:
            error = torch.nn.functional.mse_loss(network(x), y)
            sgd.zero_grad()
            error.backward()
            sgd.step()
            plan.step()
            digest.update(f"{error.item()!r} ".encode())
            done += 1
            if done >= limit:
                break
            time.sleep(pause)
    print("trained", done, digest.hexdigest(), flush=True)


if __name__ == "__main__":
    threading.Thread(target=idle, args=(7,), name="other", daemon=True).start()
    main()
