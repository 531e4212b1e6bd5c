"""What recording a collective costs: the same `all_reduce` with recording paused and going."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .measures import Measure, differences, rounds_for, scaled
from .processes import program, temporary_home, user_env


def measure(effort: float) -> Iterator[Measure]:
    """Our part alone, then real jobs of one and of two ranks."""
    rounds = rounds_for(20, effort)
    found = run_job("fake", rounds, 1)
    yield Measure(
        what="our part, per all_reduce that is waited for",
        unit="us",
        values=scaled(differences(found["recorded"], found["paused"]), 1e-3),
        aim=2.0,
        note="with torch's backend that does nothing, the quickest of many bursts",
    )
    yield Measure(
        what="our part / all_reduce of a backend that does nothing",
        unit="x",
        values=tuple(r / p - 1 for r, p in zip(found["recorded"], found["paused"], strict=True)),
        must=2.0,
    )
    yield Measure(
        what="all_reduce of that backend, recording paused",
        unit="us",
        values=scaled(found["paused"], 1e-3),
    )
    found = run_job("fake", rounds, 1, with_kernels=True)
    yield Measure(
        what="our part in a process with a DistributedDataParallel",
        unit="us",
        values=scaled(differences(found["recorded"], found["paused"]), 1e-3),
    )
    yield Measure(
        what="all_reduce there, recording paused, our kernels in place",
        unit="us",
        values=scaled(found["paused"], 1e-3),
    )
    for ranks in (1, 2):
        found = run_job("gloo", rounds, ranks)
        pairs = zip(found["recorded"], found["paused"], strict=True)
        yield Measure(
            what=f"gloo, {ranks} rank{'s' * (ranks > 1)}: all_reduce recorded / paused",
            unit="x",
            values=tuple(a / b for a, b in pairs),
        )
        yield Measure(
            what=f"gloo, {ranks} rank{'s' * (ranks > 1)}: all_reduce, recording paused",
            unit="us",
            values=scaled(found["paused"], 1e-3),
        )


def run_job(backend: str, rounds: int, ranks: int, *, with_kernels: bool = False) -> Any:
    """Run a job to its end; returns what its first rank has measured."""
    with temporary_home() as home:
        arguments = {
            "backend": backend,
            "meeting": str(home / "meeting"),
            "ranks": ranks,
            "rounds": rounds,
            "with_kernels": with_kernels,
        }
        started = [_start(home, rank, **arguments) for rank in range(ranks)]
        ended = [process.communicate() for process in started]
    for process, (_, complaint) in zip(started, ended, strict=True):
        if process.returncode:
            raise RuntimeError(f"a rank failed with {process.returncode}: {complaint}")
    return json.loads(ended[0][0].splitlines()[-1])


def _start(home: Path, rank: int, **arguments: Any) -> subprocess.Popen[str]:
    """Start one rank."""
    env = {**user_env(home), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        program("collective_calls", rank=rank, **arguments),
        env=env,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
