"""`probing hang` on real jobs that are held up, or have ended, in ways that are easily mistaken."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.harness.jobs import Job, StartJob
from tests.harness.targets import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

JOB = "held"
CODES = {"fine": 0, "hang": 1, "crashed": 6, "slow": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A fault of ``programs/held_rank.py``, and what must be said of it.

    Attributes:
        outcome: The outcome that it comes to, and never another than ``fine`` before.
        says: What must stand in the headline, in this order.
        env: What the ranks are told besides.
    """

    fault: str
    outcome: str
    kind: str
    named: frozenset[int] = frozenset({1})
    says: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


AFTER_TERM = {"IGNORE_TERM": "1"}
LINGERING = {"IGNORE_TERM": "1", "LINGER": "1"}
ROOT = frozenset({0})
NOT_COME = ("Rank 1 has not come to", "held_rank.py", "ranks 0,2 have failed there")
HELD = (
    Held(fault="saving", outcome="slow", kind="slow", named=ROOT,
         says=("Rank 0 has been writing a checkpoint for", "iB/s", "ranks 1-2 wait for it")),
    Held(fault="syncing", outcome="slow", kind="slow", named=ROOT, says=("Rank 0 has been w",)),
    Held(fault="evaluating", outcome="slow", kind="slow", named=ROOT,
         says=("Rank 0 has been computing for", "ranks 1-2 wait for it")),
    Held(fault="beside", outcome="slow", kind="slow", named=ROOT,
         says=("Rank 0 has been waiting for", "thread", "computes", "ranks 1-2 wait for it")),
    Held(fault="packing", outcome="slow", kind="slow", named=ROOT,
         says=("Rank 0 has been waiting for", "for processes of its own, which compute",
               "in pack_checkpoint")),
    Held(fault="trickling", outcome="slow", kind="slow", named=ROOT,
         says=("Rank 0 has been writing", "KiB/s", "in save_beside")),
    Held(fault="leaving", outcome="crashed", kind="ended", named=ROOT,
         says=("Rank 0 had not come to all_reduce", "where ranks 1-2 were",
               "it ended in an orderly way")),
    Held(fault="sleeping", outcome="slow", kind="slow", named=frozenset({0, 1, 2}),
         says=("Ranks 0-2 have been sleeping for", "no rank waits for another")),
    Held(fault="killed", outcome="crashed", kind="ended",
         says=("Rank 1 had not come to all_reduce", "ranks 0,2 were", "without a word")),
    Held(fault="killed", outcome="crashed", kind="ended", env=AFTER_TERM,
         says=("Rank 1 had not come to all_reduce", "ranks 0,2 were", "without a word")),
    Held(fault="own_timeout", outcome="crashed", kind="ended",
         says=("ank 1", "TimeoutError: no answer from the feature store")),
    Held(fault="timeout", outcome="hang", kind="missing", env=AFTER_TERM, says=NOT_COME),
    Held(fault="timeout", outcome="hang", kind="missing", env=LINGERING, says=NOT_COME),
    Held(fault="monitored", outcome="hang", kind="missing", env=LINGERING, says=NOT_COME),
    Held(fault="no_init", outcome="hang", kind="not_joined",
         says=("Rank 1 has not come to init_process_group: ranks 0,2 are waiting", "in main; rank 1"
               " is in a deadlock", "at held_rank.py", "in take_lock")),
    Held(fault="groups", outcome="hang", kind="not_joined", named=frozenset({0, 1, 2}),
         says=("The ranks do not make the same process group", "in new_group of ranks [0, 1, 2]"
               " at held_rank.py")),
    Held(fault="skipped_group", outcome="hang", kind="not_joined",
         says=("Rank 1 has not come to new_group of ranks [0, 1]: rank 0 is waiting", "; ranks 1-2"
               " are waiting in all_reduce")),
    Held(fault="late_group", outcome="hang", kind="not_joined",
         says=("Rank 1 has not come to new_group of ranks [0, 1]: rank 0 is waiting", "rank 1 is in"
               " a deadlock", "rank 2 is waiting in all_reduce")),
    Held(fault="key", outcome="hang", kind="store",
         says=("Rank 1 is waiting for a key of the store at held_rank.py", "ranks 0,2 are waiting"
               " in all_reduce")),
    Held(fault="no_send", outcome="hang", kind="unmatched", named=frozenset({0, 1}),
         says=("Rank 0 waits in recv from rank 1", "held_rank.py", "rank 1 does not send to it: it"
               " waits in all_reduce", "held_rank.py")),
)  # fmt: skip
ALWAYS = {("leaving", 0), ("killed", 0), ("timeout", 1), ("groups", 0)}
"""Those whose jobs always run; the rest is judged by the same rules."""
LEFT_ALONE = {"LAUNCHER_GRACE_S": "600"}
"""A rank that stays is killed by no launcher while a busy machine takes its time to look at it."""
LAST_STEP = {"leaving": 4, "killed": 3}
"""The last step that all make of those that end once the others wait for them."""


def is_always(held: Held) -> bool:
    """Whether its job always runs."""
    return (held.fault, len(held.env)) in ALWAYS


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(
            held,
            id="-".join([held.fault, *held.env]).lower(),
            marks=() if is_always(held) else [pytest.mark.nightly],
        )
        for held in HELD
    ],
)
def test_what_holds_up_a_job(job: StartJob, held: Held) -> None:
    """Slow, hung and crashed are told apart, the right ranks named, and the exit code says it."""
    started = job("held_rank", held.fault, ranks=3, PROBING_JOB=JOB, **LEFT_ALONE, **held.env)
    if held.fault in LAST_STEP:
        let_end(started, held)
    verdict = wait_until(lambda: final(started, held), f"a verdict on {held.fault}", 150)
    assert (verdict["outcome"], verdict["kind"]) == (held.outcome, held.kind), verdict
    assert {cause["rank"] for cause in verdict["causes"]} == held.named, verdict
    headline = verdict["headline"]
    for words in held.says:
        assert words in headline
        headline = headline.partition(words)[2]


def let_end(started: Job, held: Held) -> None:
    """Have the rank at fault end, now that the others wait for it: none is ended on its way."""
    sql = "SELECT seq FROM python.collectives WHERE duration IS NULL"
    for rank in set(range(started.ranks)) - held.named:
        started.wait_for_rank(rank, f"step {LAST_STEP[held.fault]}")
        wait_until(lambda rank=rank: started.ask(rank, sql), "an open row")  # type: ignore[misc]
    (started.cwd / "go").touch()


def final(started: Job, held: Held) -> dict[str, Any] | None:
    """The verdict once it says that something is wrong; not one that all ranks are still ending."""
    done = started.run(
        "-t", f"job:{JOB}", "hang", "--check", "--format", "json", timeout_s=120
    )  # fmt: skip
    assert done.returncode in CODES.values(), done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == CODES[verdict["outcome"]]
    if held.outcome == "crashed" and not verdict["has_ended"]:
        return None
    is_hang = verdict["outcome"] == "hang"
    if held.says is NOT_COME and is_hang and NOT_COME[-1] not in verdict["headline"]:
        return None  # the process group of one of them still has patience
    return verdict if verdict["outcome"] != "fine" else None


@pytest.mark.nightly
def test_ranks_without_an_agent_are_one_job(job: StartJob) -> None:
    """Named by their pids they are judged together, and what to type is a pid, too."""
    started = job("held_rank", "key", ranks=3, PROBING="0")
    started.wait_for_rank(1, "injected")
    pids = started.started_ranks()

    def judged() -> dict[str, Any] | None:
        targets = [word for pid in pids for word in ("-t", str(pid))]
        done = started.run(*targets, "hang", "--format", "json", timeout_s=120)
        assert done.returncode == 0, done.stderr
        verdict = json.loads(done.stdout)
        assert isinstance(verdict, dict), "one verdict on one job"
        return verdict if verdict["causes"] else None

    verdict = wait_until(judged, "a rank that is named", 120)
    (cause,) = verdict["causes"]
    assert (cause["rank"], verdict["victims"], verdict["is_hang"]) == (1, [0, 2], False)
    assert verdict["next_steps"][0].startswith(f"`probing -t {cause['pid']} backtrace")
    assert verdict["queries"] == []
