"""Ends its main thread alone, by pthread_exit; another one goes on. Prints `ready` before that."""

from __future__ import annotations

import ctypes
import threading
import time


def keep_working() -> None:
    """Go on for ten minutes."""
    time.sleep(600)


if __name__ == "__main__":
    threading.Thread(target=keep_working, name="worker").start()
    print("ready", flush=True)
    ctypes.CDLL(None).pthread_exit(None)
