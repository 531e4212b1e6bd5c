"""Prints `ready`, waits until nobody holds the fifo open any more, and ends as it is told."""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    print("ready", flush=True)
    with open(sys.argv[2], encoding="utf-8") as orders:
        orders.read()
    print("told", flush=True)
    way = sys.argv[1]
    if way == "exception":
        raise RuntimeError("the program's own error")
    elif way == "sys.exit(3)":
        sys.exit(3)
    elif way == "os._exit(4)":
        os._exit(4)
    elif way == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
    elif way == "SIGINT":
        os.kill(os.getpid(), signal.SIGINT)
