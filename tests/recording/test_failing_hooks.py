"""Every call that our hooks make fails in turn: the training stays the same, to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import Reached
from tests.harness.targets import clean_env, program_path

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.fault("T6")
@pytest.mark.parametrize(
    ("stride", "native"),
    [
        pytest.param(160, "1", id="some"),
        pytest.param(1, "1", id="all", marks=pytest.mark.nightly),
        pytest.param(1, "0", id="all in Python", marks=pytest.mark.nightly),
    ],
)
def test_hooks_that_fail_cost_the_record_at_most(
    stride: int, native: str, tmp_path: Path, fault: Reached
) -> None:
    """Losses are bit-identical, nothing reaches the training, the reason is told, ours goes."""
    done = subprocess.run(
        [sys.executable, str(program_path("failing_hooks")), str(stride)],
        env=clean_env(tmp_path / "home", PROBING="0", PROBING_NATIVE=native),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert (done.returncode, done.stderr) == (0, "")
    whole, *answers = map(json.loads, done.stdout.splitlines())
    fault.equals("nothing fails: losses", whole["alone"], whole["losses"])
    fault.equals("nothing fails: told", [], whole["problems"])
    by_python = {"at_output"} if native == "0" else set[str]()
    assert {"__call__", "call", "stand_in"} | by_python <= set(whole["hooks"])
    fault.equals("what hooks return that torch did not return to them", [], whole["invented"])
    assert len(answers) == -(-whole["sites"] // stride) > 5
    assert sum(answer["raised"] > 0 for answer in answers) > len(answers) // 2
    for answer in answers:
        path, line, called = answer["site"]
        got = (answer["losses"], answer["is_left"])
        assert got == (whole["alone"], True), (path, line, called, answer)
        states = [state for state, faults, _ in answer["sources"].values() if faults >= 3]
        is_told = "InjectedError" in str(answer["problems"]) and set(states) <= {"failed"}
        if not answer["raised"]:  # which calls there are depends on times that are measured
            continue
        told = "same losses, told"
        fault.holds(f"{path} calling {called}", told,
                    told if is_told else f"{answer['problems']} {answer['sources']}",
                    is_kept=is_told)  # fmt: skip
