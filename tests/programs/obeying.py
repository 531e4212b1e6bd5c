"""Does what it reads from the fifo of its argument, a line each, and prints what came of it.

`calls N`: calls a module so often. `fork`: has a child call it, too, and prints its exit code.
"""

from __future__ import annotations

import os
import sys

import torch

if __name__ == "__main__":
    model = torch.nn.Linear(2, 2)
    given = torch.ones(2)
    torch.set_num_threads(1)
    print("ready", flush=True)
    with open(sys.argv[1], encoding="utf-8") as orders:
        for number, line in enumerate(orders):
            order, *calls = line.split()
            if order == "calls":
                for _ in range(int(*calls)):
                    model(given)
                print(f"{number}: called", flush=True)
            elif order == "fork":
                child = os.fork()
                if not child:
                    model(given)
                    os._exit(0)
                print(f"{number}: {os.waitpid(child, 0)[1]}", flush=True)
