"""What is told of the words of a command line in ``python.environment``."""

from __future__ import annotations

import os
import sys
import threading

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


@pytest.mark.parametrize(
    ("binding", "sees_all"), [("OMP_PROC_BIND=true", True), ("OMP_PROC_BIND=FALSE", False)]
)
def test_a_main_thread_that_openmp_has_bound(
    binding: str, sees_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other threads have their own processors; without OpenMP, those of the main thread do."""
    usual = os.sched_getaffinity(os.getpid())
    if len(usual) == 1:
        pytest.skip("there is one processor")
    monkeypatch.setenv(*binding.split("="))
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    os.sched_setaffinity(os.getpid(), {min(usual)})
    try:
        rows = environment_rows(NoTraining()).dicts()
    finally:
        os.sched_setaffinity(os.getpid(), usual)
        done.set()
        other.join()
    (cpus,) = [row["value"] for row in rows if row["name"] == "cpus"]
    assert cpus == str(len(usual) if sees_all else 1)
