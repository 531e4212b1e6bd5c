"""Prints `ready` and waits, in the main interpreter and in another one of the same process."""

from __future__ import annotations

import importlib
import signal
import threading
import time

INSIDE = """
import time

def wait_in_sub_interpreter():
    time.sleep(10**6)

wait_in_sub_interpreter()
"""


def run_in_sub_interpreter() -> None:
    try:
        interpreters = importlib.import_module("_interpreters")  # Python 3.13 and newer
        interpreters.exec(interpreters.create("legacy"), INSIDE)
    except ImportError:
        interpreters = importlib.import_module("_xxsubinterpreters")
        interpreters.run_string(interpreters.create(), INSIDE)


def wait_here() -> None:
    time.sleep(10**6)


if __name__ == "__main__":
    signal.alarm(600)
    threading.Thread(target=run_in_sub_interpreter, name="sub", daemon=True).start()
    print("ready", flush=True)
    wait_here()
