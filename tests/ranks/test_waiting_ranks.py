"""What `probing hang` says of a rank that waits for something else than the others."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

pytest.importorskip("torch")

from probing.stacks.work_done import children_of
from tests.harness.jobs import Job, StartJob
from tests.harness.targets import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

JOB = "waiting"
NO_OTHER = "no running function of another thread"
SAYS: dict[str, tuple[str, ...]] = {
    "event": (
        f"is waiting for an event (threading.Event), which {NO_OTHER} sets, at waiting_rank",
    ),
    "condition": (f"condition (threading.Condition) (the condition changed, which {NO_OTHER} not",),
    "setter": ("is held up by thread", "by its code sets the event ready", "is waiting for data"),
    "own_loop": ("is in a deadlock", "the coroutine part", "its own event loop is to run"),
    "asyncio": ("task Task-1 is waiting for an event of asyncio at waiting_rank.py:", "in fetch"),
    "two_locks": ("is in a deadlock", "the lock other", "by thread", "the lock one", "in save"),
    "file_lock": ("is waiting for a file lock", "the lock is held by process", "(python"),
    "child": ("is waiting for a child process", "(yes) is waiting for room in a pipe"),
    "queue": ("is waiting for an item from a queue between processes", "its process", "has ended"),
    "debugger": ("is waiting at the prompt of the debugger (pdb), at waiting_rank.py:",),
    "pool": ("is in a deadlock", "the task part", "queued behind its own"),
    "loader": ("is in the DataLoader", "which is waiting for data from a pipe", "in __getitem__"),
}
"""What must stand in what is said of the rank, in this order."""
ALWAYS = {"child"}
"""The waits whose jobs always run; all others are judged by the same rules."""


@pytest.mark.parametrize(
    "wait",
    [pytest.param(wait, marks=() if wait in ALWAYS else [pytest.mark.nightly]) for wait in SAYS],
)
def test_what_a_rank_waits_for(job: StartJob, wait: str) -> None:
    """It is named with its reason, and is never called slow, at the first question neither."""
    started = job("waiting_rank", wait, ranks=2, PROBING_JOB=JOB)
    started.wait_for_rank(1, "waiting")
    try:
        verdict = wait_until(lambda: final(started), "a verdict", 120)
    finally:
        for child in children_of(started.pid(1)):
            os.kill(child, signal.SIGKILL)
    assert (verdict["kind"], verdict["outcome"]) == ("missing", "hang"), verdict
    (cause,) = verdict["causes"]
    assert cause["rank"] == 1
    said = "; ".join([cause["what"], *cause["evidence"]])
    for words in SAYS[wait]:
        assert words in said
        said = said.partition(words)[2]


def final(started: Job) -> dict[str, Any] | None:
    """The verdict, once it is one; until then it is never another than that all may be fine."""
    done = started.run("-t", f"job:{JOB}", "hang", "--format", "json", timeout_s=120)
    assert done.returncode == 0, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict if verdict["outcome"] != "fine" else None
