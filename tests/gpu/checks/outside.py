"""An agent that is put into a process which was there before."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probing.attach.attach import attach
from probing.errors import ProbingError
from probing.ring.peek import RingPeek
from tests.gpu.findings import Finding, expect, left_out, limit
from tests.gpu.trainings import wait_for

_ROOT = Path(__file__).resolve().parents[3]
_MIB = 1 << 20


class _Process:
    """A process of `tests.gpu.attached`."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.attached", *arguments],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def ask(self) -> dict[str, Any]:
        """What it says of itself, from its first step on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print("?", file=self._process.stdin, flush=True)
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def end(self) -> None:
        """Let it end."""
        self._process.communicate()


def attached(*, is_fake: bool) -> Iterator[Finding]:
    """What an agent that comes later does to a process without CUDA, and to one with it."""
    fake = ["--fake"] if is_fake else []
    idle, busy = _Process(*fake), _Process("--uses", *fake)
    try:
        before = [process.ask() for process in (idle, busy)]
        try:
            folders = [attach(process.pid, timeout_s=30).folder for process in (idle, busy)]
        except ProbingError as error:
            yield left_out("attach to a process", str(error).partition("\n")[0])
            return
        come = wait_for(lambda: all(_steps(folder) > 20 for folder in folders))
        yield expect("attached: steps are recorded", come, must=True)
        after = [process.ask() for process in (idle, busy)]
    finally:
        for process in (idle, busy):
            process.end()
    yield expect(
        "attached to one without CUDA: torch has begun to use it",
        after[0]["initialized"],
        must=before[0]["initialized"],
    )
    yield expect("attached to one without CUDA: contexts", after[0]["contexts"], must=[])
    yield expect("attached to one with CUDA: contexts", after[1]["contexts"], must=[0])
    grown = (before[1]["free"] - after[1]["free"]) / _MIB
    yield limit("attached to one with CUDA: memory of the device", grown, most=2, unit="MiB")


def _steps(folder: Any) -> int:
    """How many are on record there."""
    with contextlib.suppress(OSError), RingPeek(folder.ring("steps")) as ring:
        return int(ring.newest_seq())
    return 0
