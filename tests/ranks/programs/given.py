"""Prints whether a variable is from the launcher, after as many steps away from it as it is told.

Each step is one way in which a process starts another: `python`, `bash`, `fork` and `spawn`;
`orphan` by a shell that ends at once; `function` as a launcher does that has a function for a rank,
and sets the variable there.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from probing.rundir.elders import is_given_by_launcher

NAME, VALUE = "TORCHELASTIC_ERROR_FILE", "/some/error.json"
DEADLINE_S = 60


def go(steps: Sequence[str]) -> None:
    if not steps:
        print(is_given_by_launcher(NAME, VALUE), flush=True)
        return
    step, *rest = steps
    command = [sys.executable, __file__, *rest]
    if step == "python":
        subprocess.run(command, check=True)
    elif step == "bash":
        subprocess.run(["/bin/sh", "-c", f"{shlex.join(command)}; true"], check=True)
    elif step == "orphan":
        left = shlex.join([sys.executable, __file__, "alone", *rest])
        done = subprocess.run(
            ["/bin/sh", "-c", f"SHELL_PID=$$ {left} &"], check=True, stdout=subprocess.PIPE
        )
        print(done.stdout.decode(), end="", flush=True)  # it has ended, too
    elif step == "alone":
        wait_left()
        go(rest)
    elif step == "fork":
        forked = multiprocessing.get_context("fork").Process(target=go, args=(rest,))
        forked.start()
        forked.join()
    else:
        target = begin if step == "function" else go
        spawned = multiprocessing.get_context("spawn").Process(target=target, args=(rest,))
        spawned.start()
        spawned.join()


def begin(steps: Sequence[str]) -> None:
    """Begin as a rank that is a function."""
    os.environ[NAME] = VALUE
    go(steps)


def wait_left() -> None:
    """Wait until who started this process has ended."""
    end = time.monotonic() + DEADLINE_S
    while os.getppid() == int(os.environ["SHELL_PID"]) and time.monotonic() < end:
        time.sleep(0.01)


if __name__ == "__main__":
    go(sys.argv[1:])
