"""Real jobs with a fault in them, and what `probing hang` must say of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.harness.jobs import Job, StartJob
from tests.harness.targets import wait_until

JOB = "faulty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of ``tests/programs/faulty_rank.py``.

    Attributes:
        rank: The rank that it is put into.
        kind: The verdict: ``healthy`` where a job is not to be called hung.
        named: The ranks that must be named, and no other.
        says: What must stand in the headline, or in the notes of a healthy job.
    """

    name: str
    rank: int = 1
    kind: str
    named: frozenset[int] = frozenset({1})
    says: str


NOBODY: frozenset[int] = frozenset()
FAULTS = (
    Fault(name="missing_rank", rank=2, kind="missing", named=frozenset({2}),
          says="Rank 2 has not come to all_reduce number 6 of group 0"),
    Fault(name="reducer", rank=2, kind="missing", named=frozenset({2}),
          says="Rank 2 has not come to all_reduce number"),
    Fault(name="wrong_op", kind="mismatch", says="Rank 1 calls another op"),
    Fault(name="wrong_shape", kind="mismatch", says="Rank 1 calls another shape"),
    Fault(name="wrong_dtype", kind="mismatch", says="Rank 1 calls another dtype"),
    Fault(name="extra_barrier", rank=3, kind="mismatch", named=frozenset({3}),
          says="Rank 3 calls another op in collective number 6 of group 0: barrier"),
    Fault(name="rank0_checkpoint", rank=0, kind="mismatch", named=frozenset({0}),
          says="Rank 0 calls another shape"),
    Fault(name="uneven_batches", kind="mismatch", says="barrier at faulty_rank.py"),
    Fault(name="loader_stall", kind="missing", says="Rank 1 has not come"),
    Fault(name="exception", kind="missing", says="Rank 1 has not come"),
    Fault(name="subgroup_deadlock", kind="deadlock", named=frozenset({0, 1, 2, 3}),
          says="rank 3 waits in all_reduce number 1 of group 4"),
    Fault(name="slow_backward", kind="healthy", named=NOBODY, says="Rank 1 came last"),
    Fault(name="nan", kind="healthy", named=NOBODY, says="The loss of rank 1 is not finite"),
)  # fmt: skip
HEALTHY = Fault(name="healthy", kind="healthy", named=NOBODY, says="ranks 0-3 moved")


def start(job: StartJob, fault: Fault, **extra: str) -> Job:
    """A job of four ranks that has the fault in it."""
    started = job("faulty_rank", fault.name, str(fault.rank), ranks=4, PROBING_JOB=JOB, **extra)
    mark = "step 1" if fault == HEALTHY else "injected"
    started.wait_for_rank(fault.rank, mark)
    return started


def ask(started: Job) -> dict[str, Any]:
    """The verdict now."""
    done = started.run("-t", f"job:{JOB}", "hang", "--format", "json", timeout_s=120)
    assert done.returncode == 0, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def wait_for_verdict(started: Job, fault: Fault) -> dict[str, Any]:
    """The first verdict that is final; on the way there nobody else may be named."""

    def final() -> dict[str, Any] | None:
        verdict = ask(started)
        named = {cause["rank"] for cause in verdict["causes"]}
        assert named <= (fault.named or {fault.rank}), verdict
        if fault.kind == "healthy":
            assert not verdict["is_hang"], verdict
            words = " ".join([verdict["headline"], *verdict["notes"]])
            return verdict if verdict["kind"] == "healthy" and fault.says in words else None
        return verdict if verdict["is_hang"] or verdict["has_ended"] else None

    return wait_until(final, f"a verdict on {fault.name}", 120)
