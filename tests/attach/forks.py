"""Attaches to processes that fork all the time, and looks for children that are left hanging.

    python -m tests.attach.forks --attaches 100 --children 1000

Rules of this file: each process is a fresh one, since the first attach imports most. What counts
is the children born from the beginning of the attach on, until they are as many as is asked for and
some were born behind the agent's answer.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from probing.attach.attach import attach
from tests.harness.targets import clean_env, program_path, wait_until

PATIENCE_S = 120.0
BEFORE, BEHIND = 20, 50
"""Children that are born before each attach, and behind it, at least."""


class Born(NamedTuple):
    """Children by what became of them."""

    well: int
    unfinished: int
    hung: int


def attach_while_forking(attaches: int, children: int = BEHIND) -> tuple[Born, float]:
    """So many attaches, each to a process of its own; the children, and the time in seconds.

    Args:
        children: How many are to be born at each of them, at least.
    """
    total, seconds = Born(0, 0, 0), 0.0
    for _ in range(attaches):
        with tempfile.TemporaryDirectory() as folder:
            born, took_s = _attach_once(Path(folder), children)
        total = Born(*(a + b for a, b in zip(total, born, strict=True)))
        seconds += took_s
    return total, seconds


def _attach_once(cwd: Path, children: int) -> tuple[Born, float]:
    """One attach to a fresh process: the children born meanwhile, and how long it took."""
    log = cwd / "log"
    before = os.environ.get("PROBING_HOME")
    os.environ["PROBING_HOME"] = str(cwd / "h")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(program_path("forking"))],
            cwd=cwd,
            env=clean_env(cwd / "h"),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "ready" in log.read_text(), "ready")
        wait_until(lambda: sum(_born(cwd)) >= BEFORE, "children")
        first, began = _born(cwd), time.monotonic()
        attach(process.pid, timeout_s=PATIENCE_S)
        took_s = time.monotonic() - began
        least = max(sum(_born(cwd)) + BEHIND, sum(first) + children)
        wait_until(lambda: sum(_born(cwd)) >= least, "more children")
        last = _born(cwd)
        assert log.read_text() == "ready\n", log.read_text()
    finally:
        process.kill()
        process.wait()
        if before is None:
            del os.environ["PROBING_HOME"]
        else:
            os.environ["PROBING_HOME"] = before
    return Born(*(b - a for a, b in zip(first, last, strict=True))), took_s


def _born(cwd: Path) -> Born:
    """The children of all threads so far."""
    data = (cwd / "counters").read_bytes()
    numbers = struct.unpack(f"={len(data) // 8}Q", data)
    return Born(*(sum(numbers[kind::3]) for kind in range(3)))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--attaches", type=int, default=100)
    parser.add_argument("--children", type=int, default=1000)
    options = parser.parse_args()
    born, seconds = attach_while_forking(options.attaches, options.children)
    print(f"{options.attaches} attaches, {seconds:.0f} s: {born}", flush=True)
    if born.unfinished or born.hung:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
