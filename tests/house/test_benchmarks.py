"""The benchmarks run: nothing is measured here, and no limit counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import report
from tests.benchmarks.__main__ import NAMES
from tests.benchmarks.clients import Window, window_of
from tests.benchmarks.measures import Measure
from tests.harness.targets import DEADLINE_S, ROOT

ALWAYS = ("hot_path", "query_latency")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ALWAYS else [pytest.mark.nightly]) for n in NAMES],
)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    """As short as can be, it ends well and has a value for all that it measures."""
    results = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--smoke", "--json", str(results), name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    measures = json.loads(results.read_text("utf-8"))["measures"]
    assert measures
    assert all(measure["benchmark"] == name and measure["values"] for measure in measures)


def test_a_window_with_less_than_a_whole_step_has_its_pace() -> None:
    """By the steps that end within the window, or by those around it where steps are long."""
    log = {"ends": [0.0, 2.0, 3.0, 4.0, 9.0], "agents": [0.0, 0.25, 0.5, 0.75, 0.75]}
    assert window_of(log, 1.5, 4.5) == Window(1.0, 0.25)
    assert window_of(log, 2.5, 3.5) == Window(1.0, 0.25)
    assert window_of(log, 4.5, 8.0) == Window(5.0, 0.0)


def test_what_missed_its_limit_is_named() -> None:
    """A figure over its limit is told with both numbers; one within it, or without one, is not."""
    over = Measure(what="a call", unit="us", values=(1.0, 5.0, 9.0), must=4.0)
    within = Measure(what="a row", unit="us", values=(3.0,), must=4.0)
    unlimited = Measure(what="a loop", unit="us", values=(100.0,))
    assert report.missed({"hot_path": [over, within, unlimited]}) == [
        "missed: hot_path: a call: 5 us, and it must be at most 4 us"
    ]


def test_a_check_of_a_smoke_run_is_refused() -> None:
    """What measures nothing cannot be checked."""
    argv = [sys.executable, "-m", "tests.benchmarks", "--smoke", "--check", "hot_path"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert "--smoke measures nothing" in done.stderr
