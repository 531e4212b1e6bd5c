"""How long it takes to show where the memory of a large model is, and how long that is held."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

from .measures import Measure, rounds_for
from .processes import read_line, start_program, temporary_home, user_env

_PARAMETERS = 1_000_000_000
_LEAST_BYTES = 6 * _PARAMETERS
"""Two bytes each for the parameters, their gradients and the momentum."""
_HELD = re.compile(r"held for at most (\d+) ms")


def measure(effort: float) -> Iterator[Measure]:
    """The whole command against a training of a thousand million parameters in bfloat16."""
    took, held = [], []
    with temporary_home() as home:
        program = start_program("large_model", home, parameters=_PARAMETERS)
        try:
            read_line(program)
            words = [sys.executable, "-m", "probing", str(program.pid), "memory"]
            for _ in range(rounds_for(5, effort)):
                start = time.perf_counter()
                done = subprocess.run(
                    [*words, "--format", "json"],
                    env=user_env(home),
                    cwd=os.fspath(home),
                    capture_output=True,
                    text=True,
                    check=True,
                )
                took.append(time.perf_counter() - start)
                held += [float(ms) for ms in _HELD.findall(done.stderr + done.stdout)[:1]]
                _check(done.stdout)
                time.sleep(1.5)  # a look that is fresh answers the next question, too
        finally:
            assert program.stdin is not None
            program.stdin.close()
            program.wait()
    yield Measure(
        what="memory of 10^9 parameters in bfloat16, whole command",
        unit="s",
        values=tuple(took),
        must=2.0,
    )
    yield Measure(
        what="the training held for it, at most at a time",
        unit="ms",
        values=tuple(held),
        must=50.0,
    )


def _check(answer: str) -> None:
    """The answer is about that model."""
    (device,) = json.loads(answer)["devices"]
    found = sum(row["bytes"] for row in device["categories"]["now"])
    if found < _LEAST_BYTES:
        raise RuntimeError(f"only {found} bytes were found")
