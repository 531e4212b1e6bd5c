"""A rank under torchrun's `@record` that has a shell start a process of Python's.

Prints `ready`, its rank, its process number and that process's, which it ends by SIGKILL once there
is a file `go`. Rank 1 fails then; any other sleeps.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

LIFETIME_S = 600


def main() -> None:
    rank = os.environ["RANK"]
    command = shlex.join([sys.executable, __file__, "child"])
    shell = subprocess.Popen(["/bin/sh", "-c", f"{command}; true"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    child = int(shell.stdout.readline())
    # One write, as all ranks and their launcher have one stream.
    os.write(1, f"ready {rank} {os.getpid()} {child}\n".encode())
    while not Path("go").exists():
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    shell.wait()
    if rank == "1":
        raise ValueError("a label is out of range: 1007")
    time.sleep(LIFETIME_S)


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    if sys.argv[1:] == ["child"]:
        print(os.getpid(), flush=True)
        time.sleep(LIFETIME_S)
    from torch.distributed.elastic.multiprocessing.errors import record

    record(main)()
