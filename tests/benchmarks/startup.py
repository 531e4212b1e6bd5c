"""What the installed package adds to the start of Python, and the agent to that of a training."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.harness.targets import ROOT

from .measures import Measure, bootstrap_median, differences, measure_in_turn, rounds_for, scaled
from .processes import cost_of, plain_env, run_program, temporary_home


def measure(effort: float) -> Iterator[Measure]:
    """Off, in two virtual environments; then on, in processes that have imported torch."""
    yield from _off(rounds_for(100, effort))
    yield from _on(rounds_for(9, effort))


def _off(rounds: int) -> Iterator[Measure]:
    """`python -c pass` with and without the line that site-packages gets."""
    with temporary_home() as home:
        bare, hooked = _make_venv(home / "bare"), _make_venv(home / "hooked")
        packages = next((home / "hooked").glob("lib/python*/site-packages"))
        for name in ("probing.pth", "probing.start"):
            shutil.copy(ROOT / name, packages)
        starts = [
            functools.partial(cost_of, [str(python), "-c", "pass"], plain_env())
            for python in (hooked, bare)
        ]
        measure_in_turn(3, *starts)
        with_line, without = measure_in_turn(rounds, *starts)
    bare_wall = [cost.wall for cost in without]
    wall = differences([cost.wall for cost in with_line], bare_wall)
    cpu = differences([cost.cpu for cost in with_line], [cost.cpu for cost in without])
    yield Measure(
        what="python -c pass, installed and off, over not installed",
        unit="ms",
        values=scaled(wall, 1e3),
        must=1.0,
        aim=0.3,
        interval=bootstrap_median(scaled(wall, 1e3)),
    )
    yield Measure(what="the same, in processor time", unit="ms", values=scaled(cpu, 1e3))
    yield Measure(what="python -c pass", unit="ms", values=scaled(bare_wall, 1e3))


def _make_venv(path: Path) -> Path:
    """A fresh virtual environment without anything in it; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    return path / "bin" / "python"


def _on(rounds: int) -> Iterator[Measure]:
    """The agent's start in fresh processes."""
    with temporary_home() as home:
        run_program("agent_start", home)  # modules are compiled
        found = [run_program("agent_start", home) for _ in range(rounds)]
    yield Measure(
        what="agent start, beyond importing torch",
        unit="ms",
        values=tuple(one["ms"] for one in found),
        must=20.0,
        aim=10.0,
    )
    yield Measure(
        what="agent start, in processor time",
        unit="ms",
        values=tuple(one["cpu_ms"] for one in found),
    )
    for kind in ("all", "anon", "file", "shmem"):
        is_all = kind == "all"
        yield Measure(
            what="agent start, resident" if is_all else f"agent start, resident, {kind}",
            unit="MB",
            values=tuple(one["kib"][kind] * 1024e-6 for one in found),
            must=5.0 if is_all else None,
        )
    yield Measure(what="import torch", unit="ms", values=tuple(one["torch_ms"] for one in found))
