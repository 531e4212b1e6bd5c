"""Allows itself 256 open files and opens one again and again; whether it could is on its output."""

from __future__ import annotations

import os
import resource
import time

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    print("ready", flush=True)
    failed = told = False
    while not failed:
        try:
            with open(os.devnull):
                crowded = len(os.listdir("/proc/self/fd")) > 40
        except OSError as error:
            failed = True
            print(f"could not open a file: {error}", flush=True)
        if crowded and not told:
            told = True
            print("opened a file while flooded", flush=True)
        time.sleep(0.02)
