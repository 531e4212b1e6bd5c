"""The benchmarks run: nothing is measured here, and no limit counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import NAMES
from tests.harness.targets import ROOT

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
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    measures = json.loads(results.read_text("utf-8"))["measures"]
    assert measures
    assert all(measure["benchmark"] == name and measure["values"] for measure in measures)
