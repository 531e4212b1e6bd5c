"""What to do about a verdict, and the queries that show why it is so.

Rules of this file: pure functions. What is to be typed works where the command was typed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from ....messages import rank_paths
from ....stacks.waits import BY_DEBUGGER
from ..case import Case
from ..evidence import Cause, EvidenceQuery, RankEvidence, Verdict
from .known import known_remedies

_MOST_NEXT = 2
_STOPPED = re.compile(r"is stopped by ")


def next_steps(
    verdict: Verdict,
    asked: str,
    *,
    loading: Collection[int | None] = (),
    evals: Mapping[int | None, int] = MappingProxyType({}),
    ended: Mapping[int | None, RankEvidence] = MappingProxyType({}),
    has_others: bool = False,
) -> tuple[str, ...]:
    """What to do, in that order.

    Args:
        asked: How the command named those that it is about.
        loading: The pids of those that wait for a batch.
        evals: The eval that each of those stands still for which do, by their pids.
        ended: Those that have ended or were not found, by their pids.
        has_others: Whether ranks of other jobs may be there, so that a number is not enough.
    """
    if verdict.kind == "healthy":
        return ()
    if verdict.kind == "unseen" and not verdict.causes:
        return (
            "`probing -t all hang`: asks all ranks of this machine, `job:NAME` those of a job.",
        )
    gone = {c.pid for c in verdict.causes if verdict.has_ended or c.pid in ended} - {None}
    lost = {pid: one for pid, one in ended.items() if not one.has_stack}
    targets = [
        (_target(cause, gone, verdict.job if has_others else None), cause)
        for cause in verdict.causes[:_MOST_NEXT]
    ]
    looks = [_look(target, cause, gone, lost) for target, cause in targets]
    looks = list(filter(None, looks))
    if not verdict.has_ended:
        looks = [*_at_loaders(targets, loading), *looks, *_at_evals(targets, evals)]
    steps = known_remedies(verdict)[:_MOST_NEXT]
    if not (verdict.is_hang or verdict.has_ended or verdict.kind in {"process", "slow"}):
        steps.append("Ask again: this may still be a slow step.")
    is_alone = verdict.kind == "slow" and not verdict.victims and len(verdict.causes) == 1
    kind = "slow_alone" if is_alone else verdict.kind
    steps += [remedy.format(asked=asked) for remedy in _REMEDIES.get(kind, ())]
    if verdict.kind in {"stopped", "process"}:
        steps += map(_let_go, (c for c in verdict.causes if _STOPPED.match(c.what)))
    return (*looks, *steps) if verdict.kind not in {"ended", "dead"} else (*steps, *looks)


def _look(
    target: str,
    cause: Cause,
    gone: Collection[int | None],
    lost: Mapping[int | None, RankEvidence],
) -> str:
    """What shows where one is, or was; empty where nothing does."""
    if cause.pid not in lost:
        options, verb = ("", "was") if cause.pid in gone else (" --locals", "is")
        return f"`probing -t {target} backtrace{options}`: where it {verb}."
    if lost[cause.pid].step is None:
        return ""
    return f'`probing -t {target} query "FROM steps ORDER BY step DESC LIMIT 5"`: its last steps.'


def _let_go(cause: Cause) -> str:
    """How a process that is stopped goes on."""
    on, who = f" on {cause.host}" if cause.host else "", "it"
    if cause.rank is not None:
        who = f"rank {cause.rank}"
    if BY_DEBUGGER in cause.what:
        return f"`grep TracerPid /proc/{cause.pid}/status`{on}: which process must let {who} go on."
    return f"`kill -CONT {cause.pid}`{on}: let {who} go on."


def _at_loaders(targets: Sequence[tuple[str, Cause]], loading: Collection[int | None]) -> list[str]:
    """Where to look at those that wait for a batch."""
    return [
        f"`probing -t {target} dataloaders`: which worker it waits for, and where that is."
        for target, cause in targets
        if cause.pid in loading
    ]


def _at_evals(targets: Sequence[tuple[str, Cause]], evals: Mapping[int | None, int]) -> list[str]:
    """How to end the evals that some stand still for."""
    return [
        f"`probing -t {target} jobs cancel {evals[cause.pid]}`: interrupts that eval at its"
        " next line of Python; when its time limit is over, the training goes on in any case."
        for target, cause in targets
        if cause.pid in evals
    ]


_REMEDIES: Mapping[str, tuple[str, ...]] = {
    "slow": (
        "Wait, and ask again: a loop that does not end computes, too. Ranks that wait for longer"
        " than the timeout of their process group fail: what takes so long must be done by all, or"
        " beside the training.",
    ),
    "slow_alone": (
        "Wait, and ask again: if it is at the same line then, it will not get on by itself. A loop"
        " that does not end computes, too, and who retries for ever sleeps.",
    ),
    "held": (
        "Let that thread give back what it has before it sleeps or waits for something: no such"
        " line belongs inside `with lock:`. Until it does, the training waits.",
    ),
    "mismatch": (
        "Look for a branch that not all ranks take (`if rank == 0:`, a batch of another size) above"
        " the lines that are named.",
    ),
    "missing": (
        "What it does there must end, or be done by all ranks; until then the others wait.",
    ),
    "dead": (
        "Start the job anew, from its last checkpoint: a rank that has ended does not come back.",
    ),
    "deadlock": ("Make all ranks use these groups in the same order.",),
    "not_joined": ("Let all ranks make the same process groups, in the same order.",),
    "store": ("Let some rank set that key, or wait for it with a time limit.",),
    "unmatched": ("Give every recv its send, in the order in which both ranks come to them.",),
    "same_collective": (
        "Look at the network and at the devices of these machines; `dmesg` tells of both.",
        "`probing {asked} backtrace --native`: in which C function they wait.",
    ),
    "unseen": ("Ask the machine that the rank should be on; see `probing list --job`.",),
    "unknown": ("`probing {asked} backtrace`: where all ranks are.",),
}


def queries(verdict: Verdict, case: Case) -> tuple[EvidenceQuery, ...]:
    """The queries that show what the verdict follows from, whenever they are run."""
    has_record = any(evidence.has_agent for evidence in case.ranks.values())
    if verdict.kind in {"process", "healthy"} or len(case.ranks) < 2 or not has_record:
        return ()
    if any(evidence.is_by_flight for evidence in case.ranks.values()):
        return (EvidenceQuery(title="torch's own record of the collectives", sql=_FLIGHTS),)
    at_ns = None if verdict.has_ended else case.seen_ns
    is_open, so_far = "(duration_ns IS NULL OR error IS NOT NULL)", ""
    since = "make_timestamp_ns(start_ns) AS called_at"
    if at_ns is not None:  # a job that goes on may have left these calls by then
        so_far = f" AND start_ns <= {at_ns}"
        is_open = f"(duration_ns IS NULL OR start_ns + duration_ns > {at_ns})"
        since = f"round(({at_ns} - start_ns) / 1e9, 1) AS seconds"
    found = [
        EvidenceQuery(
            title="the collectives that ranks are in",
            sql=_INSIDE.format(since, is_open, so_far),
        )
    ]
    if verdict.group is not None:
        group = verdict.group.replace("'", "''")
        sql = _REACHED.format(group, so_far)
        found.append(EvidenceQuery(title="how far each rank has come in the group", sql=sql))
    return tuple(found)


_INSIDE = (
    "SELECT rank, process_group, seq, op, caller, {} FROM python.collectives WHERE {}{}"
    " ORDER BY process_group, seq, rank"
)
_FLIGHTS = (
    "SELECT rank, process_group, backend_seq, op, shapes, dtypes, is_over"
    " FROM python.flight_recorder QUALIFY row_number() OVER (PARTITION BY rank, process_group"
    " ORDER BY record_id DESC) <= 2 ORDER BY process_group, backend_seq, rank"
)
_REACHED = (
    "SELECT rank, max(seq) AS seq, arg_max(op, seq) AS op, arg_max(shapes, seq) AS shapes,"
    " arg_max(dtypes, seq) AS dtypes, arg_max(caller, seq) AS caller FROM python.collectives"
    " WHERE process_group = '{}' AND op NOT IN ('send', 'recv'){} GROUP BY rank ORDER BY seq, rank"
)


def _target(cause: Cause, gone: Collection[int | None], job: str | None) -> str:
    """An endpoint of a rank; one that has ended is no longer found by its rank."""
    if cause.endpoint:
        return cause.endpoint
    if cause.rank is None or cause.pid in gone:
        return str(cause.pid)
    return shlex.quote(rank_paths.of_job(cause.rank, job))
