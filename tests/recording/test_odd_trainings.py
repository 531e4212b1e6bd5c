"""Trainings as few write them are on record all the same, and nothing of ours is switched off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.targets import DEADLINE_S, clean_env, program_path

pytestmark = pytest.mark.torch

_LONGEST_NS = 1e8
"""More than any part of recording takes in a step, on a machine that is busy, too."""


def outcome_of(way: str, tmp_path: Path) -> Any:
    """What a program of `odd_trainings` has told."""
    done = subprocess.run(
        [sys.executable, str(program_path("odd_trainings")), way],
        env=clean_env(tmp_path / "home"), cwd=tmp_path, capture_output=True, text=True,
        timeout=2 * DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("way", "steps"), [("no_numbers", 8), ("named_variable", 7), ("lazy", 8)])
def test_all_steps_are_counted_and_no_source_fails(way: str, steps: int, tmp_path: Path) -> None:
    """Without a backend's numbers; with a node that has a `variable`; with a lazy module.

    One made by hand ends as the next pass begins.
    """
    told = outcome_of(way, tmp_path)
    assert (told["problems"], told["step"]) == ([], steps)


def test_what_a_pass_costs_is_told_though_steps_end_in_it(tmp_path: Path) -> None:
    """One clock is read before and after, also where the step ends in between."""
    told = outcome_of("in_backward", tmp_path)
    assert told["problems"] == []
    assert told["costs"]["backward"] < _LONGEST_NS


def test_an_agent_that_leaves_ends_no_pass(tmp_path: Path) -> None:
    """Torch finds what it was about to call from C++, though the agent goes meanwhile."""
    assert outcome_of("left_and_met", tmp_path) == "went on"
