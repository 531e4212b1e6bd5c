"""A rank that sleeps; rank 1 ends by itself with exit code 3 if the argument is `leaves`.

Prints `ready`, its rank and its process number; needs no torch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

LIFETIME_S = 600


def main(way: str) -> None:
    rank = os.environ["RANK"]
    # One write, as all ranks and their launcher have one stream.
    os.write(1, f"ready {rank} {os.getpid()}\n".encode())
    if way == "leaves" and rank == "1":
        while not Path("go").exists():
            time.sleep(0.02)
        sys.exit(3)
    time.sleep(LIFETIME_S)


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    main(sys.argv[1])
