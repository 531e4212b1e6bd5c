"""What is told of the words of a command line in ``python.environment``."""

from __future__ import annotations

import sys

import pytest

from probing.agent.live.environment import environment_rows
from probing.agent.recording.no_training import NoTraining

pytestmark = pytest.mark.anypython


def test_a_secret_may_have_no_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of Latin-1 in a password, as Python gives it, costs no row."""
    monkeypatch.setattr(sys, "argv", ["train.py", "--password", "p\udce4ss", "--lr", "0.1"])
    rows = [row for row in environment_rows(NoTraining()).dicts() if row["kind"] == "argument"]
    assert [(row["name"], row["value"], row["is_secret"]) for row in rows] == [
        ("--password", None, True), ("--lr", "0.1", False),
    ]  # fmt: skip
    assert [len(row["fingerprint"] or "") for row in rows] == [4, 0]
