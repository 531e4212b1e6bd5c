"""Keeps a training under questions for a long time, and tells whether anything grows.

Rules of this file: a real training, real clients and the real commands; what is measured of the
training's process is read from the kernel. Every promise is one line, `S... expected, got`, and the
exit code is 1 where one is broken.

    python -m tests.soak               30 minutes
    python -m tests.soak --minutes 5   what fits beside the tests
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests import faults
from tests.harness.targets import start_training

from .growth import WARM_UP, Watch, slope_per_hour
from .questions import Questions, damaged

_MIB = 1 << 20
_RESOLVED_MIB = 0.5
"""Growth of a run that may be nothing: what is in use differs by as much from step to step."""
_HELD_MIB_PER_H = 1.0
_SLOPE_H = 0.4
"""How many hours after the warm-up show a slope: those of a run of half an hour."""
_ONCE_MIB = 4.0
"""What may come once in a run that is shorter: a list of all objects in the training's own heap,
some MiB, and the heap's top, which a training without us too moves by 0.7 MiB."""


def main(argv: list[str] | None = None) -> int:
    """Run, print a line for each promise; returns the exit code."""
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=about)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long [default: 30]")
    parser.add_argument(
        "--record-faults", action="store_true", help="keep the figures in docs/reliability.json"
    )
    options = parser.parse_args(argv)
    reached = faults.Reached(faults.find_fault("S3"), "tests/soak")
    try:
        _soak(60 * options.minutes, reached)
    except AssertionError as broken:
        print(f"broken: {broken}", file=sys.stderr)
        return 1
    finally:
        if options.record_faults:
            faults.record(faults.RESULTS, [reached], platform.python_version())
    return 0


def _soak(seconds: float, reached: faults.Reached) -> None:
    """Ask for so long, then compare."""
    with tempfile.TemporaryDirectory() as folder:
        often = ("--checkpoint-every", "2", "--pause", "0.1")
        target = start_training(*often, home=Path(folder) / "home", cwd=Path(folder))
        try:
            watch, questions = Watch(target.pid), Questions(target)
            questions.warm_up()
            before = questions.in_use()
            with questions.asking():
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    watch.look()
                    questions.raise_if_broken()
                    time.sleep(1.0)
            after = questions.in_use()
            os.kill(target.pid, signal.SIGSTOP)
            reached.at_most("in use, at the end more", *_growth(before, after, seconds))
            _compare(watch, questions, seconds, reached)
        finally:
            target.reap()


def _growth(
    before: tuple[int, int], after: tuple[int, int], seconds: float
) -> tuple[float, float, str]:
    """Limit, figure and unit of what is allocated and not freed; Python's blocks have 64 bytes."""
    grown = (after[0] - before[0] + 64 * (after[1] - before[1])) / _MIB
    return max(1.0 * seconds / 3600, _RESOLVED_MIB), grown, "MiB"


def _compare(watch: Watch, questions: Questions, seconds: float, reached: faults.Reached) -> None:
    """Say what came of it."""
    minutes = f"{seconds / 60:g} min"
    hours = seconds * (1 - WARM_UP) / 3600
    slope = slope_per_hour(watch.resident_kib) / 1024
    is_long = hours >= _SLOPE_H * 0.99
    limit = _HELD_MIB_PER_H if is_long else max(_HELD_MIB_PER_H, _ONCE_MIB / hours)
    reached.at_most(f"resident size, {minutes}", limit, slope, "MiB/h")
    for what, series in (("descriptors", watch.descriptors), ("threads", watch.threads)):
        first, last = series.typical_first(), series.typical_last()
        reached.at_most(f"{what} more at the end, {minutes}", 0, last - first, "")
    reached.equals(f"answers that failed, {minutes}", 0, len(questions.failures))
    reached.at_most(f"slowest answer, {minutes}", 10.0, questions.slowest_s, "s")
    reached.equals("tables with gaps, torn or lost rows", [], damaged(questions.target))
    reached.holds(
        f"questions, {minutes}", "some of each kind", questions.counts(), is_kept=questions.is_whole
    )


if __name__ == "__main__":
    sys.exit(main())
