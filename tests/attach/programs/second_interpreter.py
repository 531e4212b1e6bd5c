"""Starts the agent, then tries to have another one in a second interpreter; prints `done`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time

import probing

INSIDE = f"""
import os, sys
sys.path[:] = {sys.path!r}
import probing
from probing.errors import AttachRefused
from probing.ring.format import HEADER_SIZE, layout_of
from probing.ring.native import IN_C, Moment, Words
from probing.tables import TORCH_TRACE

def call(self):
    return None

def takes_a_recording():
    if IN_C is None:
        return False
    try:
        IN_C.install(
            function=call, original=call, is_direct=False,
            layout=tuple((f.column.name, f.offset, f.code) for f in layout_of(TORCH_TRACE).fields),
            ring=memoryview(bytearray(HEADER_SIZE + 64 * 64)), words=Words(4), now=Moment(),
            known={{}}, state_of_thread=print, sample=print,
            note_failure=print, fault=print, is_programs=print,
        )
    except RuntimeError:
        return False
    return True

try:
    probing.start()
    told = "there is a second agent"
except AttachRefused as error:
    told = str(error)
os.write(1, f"{{told}}\\ntakes a recording: {{takes_a_recording()}}\\n".encode())
"""


def run_in_second_interpreter(code: str) -> None:
    try:
        interpreters = importlib.import_module("_interpreters")  # Python 3.13 and newer
        failed = interpreters.exec(interpreters.create("legacy"), code)
    except ImportError:
        interpreters = importlib.import_module("_xxsubinterpreters")
        failed = interpreters.run_string(interpreters.create(isolated=False), code)
    assert failed is None, failed


if __name__ == "__main__":
    signal.alarm(600)
    probing.start()
    answer = probing.connect(os.getpid())
    run_in_second_interpreter(INSIDE)
    assert answer.eval("1 + 1").value == "2"
    print("done", flush=True)
    time.sleep(600)
