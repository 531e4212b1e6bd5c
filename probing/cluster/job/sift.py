"""Which of the processes found are the ranks of a job as it runs now.

Rules of this file: pure functions of members. What is left out is said in a note. What nobody
vouches for never takes the place of what runs and is vouched for.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence

from .membership import Member, names_of
from .rank_sets import rank_set


def without_repeats(members: Iterable[Member]) -> list[Member]:
    """Each process once, the first way to it; one of this machine before one by a node server."""
    found: dict[object, Member] = {}
    for member in sorted(members, key=lambda m: (not m.is_proven, m.via is not None)):
        key: object = (member.host, member.pid, member.started_ns)
        found.setdefault(key if member.pid is not None else member.endpoint, member)
    return list(found.values())


def sift(members: Sequence[Member]) -> tuple[list[Member], list[str]]:
    """The members of each job's newest attempt, one for each rank; and notes on the others."""
    kept: list[Member] = []
    notes: list[str] = []
    jobs: dict[str | None, list[Member]] = defaultdict(list)
    for member in members:
        jobs[member.job].append(member)
    for job, those in jobs.items():
        believed, words = _believed(those)
        notes += words
        of_this_run, words = _last_run(believed)
        notes += words
        newest, words = _newest_attempt(job, of_this_run)
        notes += words
        ranked, words = _one_each([m for m in newest if m.rank is not None])
        notes += words
        kept += [*ranked, *(m for m in newest if m.rank is None)]
    return kept, notes


def _believed(members: list[Member]) -> tuple[list[Member], list[str]]:
    """The members of a job without those that contradict what certainly runs."""
    certain = [m for m in members if m.is_proven and m.is_alive is not False and m.rank is not None]
    ranks = {m.rank for m in certain}
    attempt = max((m.attempt for m in certain), default=None)

    def is_against(member: Member) -> bool:
        is_newer = attempt is not None and member.attempt > attempt
        return not member.is_proven and (member.rank in ranks or is_newer)

    notes = [
        f"{via} is not believed: it tells otherwise of {names_of(those)}"
        for via, those in _by_way(filter(is_against, members)).items()
    ]
    return [member for member in members if not is_against(member)], notes


def _by_way(members: Iterable[Member]) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        found[member.via or member.endpoint].append(member)
    return found


def _last_run(members: list[Member]) -> tuple[list[Member], list[str]]:
    """The members without those of an earlier run, known by attempts that went down.

    Where a rank came later in a lower attempt, the job was started again under the same name, or
    another node has that rank now: what else started nearer to the one before goes with it; what
    still runs, only where its rank runs in the later run, too.
    """
    by_rank: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        if member.rank is not None:
            by_rank[member.rank].append(member)
    pairs = [
        (before.started_ns, now.started_ns)
        for those in by_rank.values()
        for before in those
        for now in those
        if (before.is_alive is False or now.is_alive is not False)
        and before.attempt > now.attempt
        and before.started_ns < now.started_ns
    ]
    if not pairs:
        return members, []
    last = max(before for before, _ in pairs)
    first = min(now for _, now in pairs if now > last)
    later = [m for m in members if _is_nearer(m.started_ns, first, last)]
    taken = {m.rank for m in later if m.is_alive is not False and m.rank is not None}

    def is_old(member: Member) -> bool:
        is_past = member.is_alive is False or member.rank in taken
        return is_past and not _is_nearer(member.started_ns, first, last)

    old = list(filter(is_old, members))
    alive = sum(member.is_alive is not False for member in old)
    still = f"{alive} of them still running" if alive else "ended"
    note = f"{_processes(len(old))} of an earlier run left out, {still}"
    return [member for member in members if not is_old(member)], [note]


def _newest_attempt(job: str | None, members: list[Member]) -> tuple[list[Member], list[str]]:
    """The members of the attempt that the launcher has come to.

    torchrun counts on each node by itself, and there only what has failed there: where one node's
    ranks are in attempt 1, those of another run in attempt 0, of the same job.
    """
    newest = max(member.attempt for member in members)
    there = [member for member in members if member.attempt == newest]
    hosts, ranks = {m.host for m in there}, {m.rank for m in there}
    size = max((member.world_size or 0 for member in there), default=0)
    highest: dict[str, int] = {}
    for member in members:
        highest[member.host] = max(member.attempt, highest.get(member.host, 0))

    def is_of_another_node(member: Member) -> bool:
        is_open = member.rank is not None and member.rank not in ranks and member.rank < size
        is_last = member.attempt == highest[member.host]
        return is_open and is_last and member.host not in hosts

    others = [member for member in members if is_of_another_node(member)]
    old = [member for member in members if member.attempt != newest and member not in others]
    there += [dataclasses.replace(member, attempt=newest) for member in others]
    if not old:
        return there, []
    alive = sum(member.is_alive is not False for member in old)
    still = f", {alive} of them still running" if alive else ", all ended"
    attempts = rank_set(member.attempt for member in old)
    name = f"job {job}: " if job else ""
    note = (
        f"{name}{_processes(len(old))} of attempt {attempts} left out{still};"
        f" this is attempt {newest}"
    )
    return there, [note]


def _one_each(members: list[Member]) -> tuple[list[Member], list[str]]:
    """One process for each rank: the one that runs, of several the one started last.

    Where a job was started again under the same name, what else is left of its earlier run goes,
    too: what started nearer to the processes left out than to those kept.
    """
    by_rank: dict[int | None, list[Member]] = defaultdict(list)
    for member in members:
        by_rank[member.rank].append(member)
    for those in by_rank.values():
        those.sort(key=lambda m: (m.is_alive is not False, m.started_ns), reverse=True)
    doubles = [those for those in by_rank.values() if len(those) > 1]
    if not doubles:
        return members, []
    kept = [those[0] for those in by_rank.values()]
    now = min(those[0].started_ns for those in doubles)
    before = max(those[1].started_ns for those in doubles)
    earlier = [m for m in kept if m.is_alive is False and _is_nearer(m.started_ns, before, now)]
    notes = [_note_on(those) for those in doubles if any(m.is_alive for m in those[1:])]
    ended = sum(m.is_alive is False for those in doubles for m in those[1:]) + len(earlier)
    if ended:
        notes.append(f"{_processes(ended)} of an earlier run left out, ended")
    return [member for member in kept if member not in earlier], notes


def _is_nearer(moment: int, this: int, that: int) -> bool:
    return abs(moment - this) < abs(moment - that)


def _note_on(those: list[Member]) -> str:
    """The sentence on several live processes of one rank."""
    others = ", ".join(f"{m.pid} on {m.host}" for m in those[1:] if m.is_alive is not False)
    return (
        f"rank {those[0].rank} is there more than once: process {those[0].pid} on {those[0].host}"
        f" is asked, which started last, {others} left out"
    )


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"
