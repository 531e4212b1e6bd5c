"""`probing hang` on real jobs of four gloo ranks, each with another fault in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.harness.jobs import StartJob
from tests.harness.targets import wait_until
from tests.ranks.hang_faults import FAULTS, HEALTHY, Fault, ask, start, wait_for_verdict

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ALWAYS = {"reducer", "wrong_shape", "subgroup_deadlock"}
"""The faults whose jobs always run; the others are judged by the same rules."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, id=fault.name, marks=() if fault.name in ALWAYS else [pytest.mark.nightly]
        )
        for fault in FAULTS
    ],
)
def test_the_rank_to_blame(job: StartJob, fault: Fault) -> None:
    """The verdict is of the right kind, names the faulty ranks, and no innocent one at any time."""
    verdict = wait_for_verdict(start(job, fault), fault)
    assert verdict["kind"] == fault.kind, verdict
    assert {cause["rank"] for cause in verdict["causes"]} == fault.named
    words = " ".join([verdict["headline"], *verdict["notes"]])
    assert fault.says in words
    if fault.kind != "healthy":
        assert sorted([*fault.named, *verdict["victims"]]) == [0, 1, 2, 3]


@pytest.mark.nightly
def test_a_healthy_job(job: StartJob) -> None:
    """No verdict, asked again and again."""
    started = start(job, HEALTHY)
    for _ in range(5):
        verdict = ask(started)
        assert (verdict["kind"], verdict["causes"]) == ("healthy", [])


def test_an_agent_that_comes_late(job: StartJob) -> None:
    """Attached to ranks that hang already, it names the one that is missing, by torch's record."""
    started = job("ranks", "missing", ranks=3, PROBING="0")
    started.wait_for_rank(2, "done")
    for pid in started.started_ranks():
        done = started.run("attach", str(pid), timeout_s=120)
        assert done.returncode == 0, done.stderr

    def told() -> Any:  # torch's record is asked for once the agents have loaded their servers
        done = started.run("-t", "all", "hang", "--format", "json", timeout_s=120)
        verdict = json.loads(done.stdout)
        return verdict if "flight recorder" in (verdict["confidence"] or "") else None

    verdict = wait_until(told, "a verdict by torch's record")
    assert verdict["kind"] == "missing", verdict
    assert [cause["rank"] for cause in verdict["causes"]] == [2]
    assert verdict["victims"] == [0, 1]
    assert "not come to all_reduce number 3 of group 0 at ranks.py" in verdict["headline"]
    assert "flight recorder" in verdict["confidence"]
