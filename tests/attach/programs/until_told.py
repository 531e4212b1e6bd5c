"""Prints `ready`, waits in C for a byte in the fifo of its second argument, and ends.

The first argument says how it waits: `keeping` the interpreter lock or `freeing` it. It imports no
threading, as the simplest of programs do not.
"""

from __future__ import annotations

import ctypes
import os
import sys

if __name__ == "__main__":
    assert "threading" not in sys.modules or sys.version_info >= (3, 13)
    library = (ctypes.PyDLL if sys.argv[1] == "keeping" else ctypes.CDLL)(None)
    fifo = os.open(sys.argv[2], os.O_RDWR)
    byte = ctypes.create_string_buffer(1)
    print("ready", flush=True)
    count = library.read(fifo, byte, 1)
    print("told", count, byte.raw, flush=True)
    if sys.argv[3:]:
        os.read(fifo, 1)
    if "threading" in sys.modules:
        threading = sys.modules["threading"]
        print(threading.main_thread() is threading.current_thread(), flush=True)
