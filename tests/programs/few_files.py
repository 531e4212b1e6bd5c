"""Allows itself few open files, and says once that it can open one while connections flood in."""

from __future__ import annotations

import os
import resource
import time

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    print("ready", flush=True)
    told = False
    while True:
        with open(os.devnull) as file:
            crowded = len(os.listdir("/proc/self/fd")) > 40
            if crowded and not told:
                print("opened a file while flooded", file.fileno() > 0, flush=True)
                told = True
        time.sleep(0.02)
