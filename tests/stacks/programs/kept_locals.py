"""Keeps what `locals()` gave it, prints `ready` and sleeps."""

from __future__ import annotations

import time


def keep() -> None:
    rate, shape = 0.5, (2, 3)
    kept = locals()
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
        if sorted({*kept} - {"kept"}) != ["rate", "shape"]:
            print("emptied", rate, shape, flush=True)
            time.sleep(600)


if __name__ == "__main__":
    keep()
