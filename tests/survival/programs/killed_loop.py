"""Raises SystemExit in the agent's thread at each SIGUSR1, and prints that it did."""

from __future__ import annotations

import ctypes
import signal
import threading
import time


def kill(*_: object) -> None:
    for thread in threading.enumerate():
        if thread.name == "probing-agent":
            set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
            set_exception(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
            print("injected", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, kill)
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
