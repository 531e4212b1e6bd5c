"""Finds the processes that some endpoints mean.

Rules of this file: all addresses are asked at the same time; what does not answer is a missing
member and a note. Only where nothing at all is found is that an error.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from ...errors import BadEndpoint, NoSuchProcess, NotAnswering, NotProbing, ProbingError
from ...errors.querying import told_of
from ...linux import process
from ...reach.endpoint import Local, Stranger, resolve
from ...rundir.folders import RunDirectory, from_env
from ..launchers import place_in
from .membership import Member, Membership, in_order, jobs_among, missing_member, names_of
from .outcomes import AT_ONCE
from .parallel import Done, run_at_once
from .plans import Plan, plan_of, where_named
from .providers.addresses import members_at
from .providers.this_machine import member_at, members_here
from .rank_sets import MOST_RANKS, rank_set
from .sift import sift, without_repeats

_MOST_TOLD = 32
"""Of how many addresses it is told one by one that they do not answer."""

__all__ = ["Member", "Membership", "find_members"]


def find_members(
    endpoints: Sequence[str],
    *,
    token: str | None = None,
    timeout_s: float = 5.0,
    states: bool = False,
    job: str | None = None,
    still: Collection[str] = (),
    env: Mapping[str, str] | None = None,
) -> Membership:
    """Find every process that the endpoints mean, each once, and the ranks that are missing.

    Args:
        endpoints: What `probing.connect` takes, and what stands for several processes:
            see `probing.cluster.job.plans`.
        token: The token of TCP requests.
        timeout_s: How long the answers of other machines are waited for.
        states: Also what each of them does; asks them all for a sign.
        job: Only the processes of that job, and the addresses that do not answer.
        still: The endpoints of processes that are meant by what stands for several, too, though
            they have ended and nothing of their job runs.
        env: The environment that says where to look; this process's if not given.

    Raises:
        BadEndpoint: One of them is none of the forms, or fits several jobs.
        ProbingError: Nothing at all was found.
    """
    words = tuple(dict.fromkeys(endpoints))
    env = os.environ if env is None else env
    plans = where_named([plan_of(word, env, timeout_s=timeout_s) for word in words])
    if job is not None:
        plans = [dataclasses.replace(plan, job=plan.job or job) for plan in plans]
    finder = _Finder(from_env(), token, timeout_s, states=states, still=still)
    finder.ask(
        (address for plan in plans for address in plan.addresses),
        told=[address for plan in plans for address in plan.told],
    )
    found, missing, mixed = [], [], []
    for plan in plans:
        members = [m for m in finder.members_of(plan) if job in (None, m.job)]
        found += members
        mixed += [plan.word] if _is_mixed(plan, members) else []
        if plan.ranks is not None:
            missing += _missing_of(plan, members)
    seen, notes = sift(without_repeats(found))
    if not seen:
        of_job = "" if job is None else f"of job {job} "
        failure = _with_way_out(finder.failure, plans)
        raise failure or NoSuchProcess(f"{of_job}for {' '.join(words)}")
    if any(plan.is_whole for plan in plans):
        missing += _missing_ranks(seen)
    notes += [*(note for plan in plans for note in plan.notes), *finder.notes]
    membership = _membership(words, [*seen, *missing, *finder.silent], notes)
    return dataclasses.replace(membership, mixed=tuple(mixed))


def _with_way_out(failure: ProbingError | None, plans: Sequence[Plan]) -> ProbingError | None:
    """What failed, with what to do where no node server is where one was looked for."""
    way_out = next((plan.no_server for plan in plans if plan.no_server), "")
    if isinstance(failure, NotProbing) and failure.reason == NotProbing.refused and way_out:
        return NotProbing(failure.address, failure.reason, help=way_out)
    return failure


class _Finder:
    """The processes behind the plans, each address asked once.

    Attributes:
        notes: What could not be found out.
        failure: The first error.
        silent: Addresses that did not answer, as missing members.
    """

    def __init__(
        self,
        directory: RunDirectory,
        token: str | None,
        timeout_s: float,
        *,
        states: bool,
        still: Collection[str],
    ) -> None:
        self._directory, self._token, self._timeout_s = directory, token, timeout_s
        self._states, self._still = states, still
        self._here: list[Member] | None = None
        self._answers: dict[str, list[Member]] = {}
        self._told: set[str] = set()
        self.notes: list[str] = []
        self.failure: ProbingError | None = None
        self.silent: list[Member] = []

    def ask(self, addresses: Iterable[str], *, told: Sequence[str] = ()) -> None:
        """Ask all addresses who is behind them.

        Args:
            told: Those that others named.
        """
        chosen = dict.fromkeys(addresses)
        words = list({**chosen, **dict.fromkeys(told)})
        self._told = set(words) - set(chosen)
        tasks = [self._task(word) for word in words]
        found = run_at_once(tasks, timeout_s=self._timeout_s, at_once=AT_ONCE)
        for word, done in zip(words, found, strict=True):
            self._answers[word] = self._received(word, done)

    def members_of(self, plan: Plan) -> list[Member]:
        """The members that a plan means."""
        if plan.is_single:
            return self._single(plan.word)
        words = (*plan.addresses, *plan.told)
        found = [member for word in words for member in self._answers[word]]
        if plan.is_here:
            found += self._members_here()
        fitting = [m for m in found if plan.job in (None, m.job)]
        if plan.ranks is not None:  # of a job, not of whatever else runs
            fitting = [m for m in fitting if m.rank is not None]
        current = _current(fitting, is_job=plan.job is not None, still=self._still)
        self.notes += _ended_notes(current)
        if plan.ranks is None:
            return current
        wanted = [m for m in current if m.rank in plan.ranks]
        jobs = {m.job for m in wanted}
        if len(jobs) > 1:
            names = ", ".join(sorted(job or "one without a name" for job in jobs))
            raise BadEndpoint(
                plan.word, f"it fits several jobs ({names}); name one: job:NAME/{plan.word}"
            )
        return wanted

    def _task(self, word: str) -> Callable[[], list[Member]]:
        return lambda: members_at(
            word,
            self._directory,
            token=self._token,
            timeout_s=self._timeout_s,
            states=self._states,
            is_told=word in self._told,
        )

    def _received(self, word: str, done: Done[list[Member]] | None) -> list[Member]:
        """The members behind an address; none where it did not answer, which is told."""
        if done is not None and done.value is not None:
            return done.value
        error = NotAnswering(word, self._timeout_s) if done is None else done.error
        self._fail(word, told_of(error))
        return []

    def _fail(self, word: str, error: ProbingError) -> None:
        self.failure = self.failure or error
        if len(self.silent) < _MOST_TOLD:
            self.notes.append(f"{word}: {error.message}")
        elif len(self.silent) == _MOST_TOLD:
            self.notes.append("and so do more of them; `list --job` shows which")
        silent = Member(
            rank=None, host="", pid=None, world_size=None, endpoint=word, state="missing"
        )
        self.silent.append(silent)

    def _members_here(self) -> list[Member]:
        if self._here is None:
            self._here = members_here(self._directory, states=self._states)
        return self._here

    def _single(self, word: str) -> list[Member]:
        """The one process of an endpoint."""
        try:
            place = resolve(word, self._directory, token=self._token)
        except NoSuchProcess as error:
            self._fail(word, error)
            return []
        card = place.folder.read_card() if isinstance(place, Local) else None
        if isinstance(place, Local) and card is not None:
            return [member_at(place.folder, card)]
        if isinstance(place, Stranger):
            return [_stranger(place.pid, word)]
        pid = int(word) if word.isdecimal() else None
        path = Path(word).parent.name if "/" in word else ""
        host = "" if pid is None and not path else os.uname().nodename
        return [Member(rank=None, host=host, pid=pid, world_size=None, endpoint=word)]


def _stranger(pid: int, word: str) -> Member:
    """A process without an agent: which rank it is of which job, its environment says."""
    place = place_in(process.environment(pid))
    return Member(
        rank=place.rank,
        host=os.uname().nodename,
        pid=pid,
        world_size=place.world_size,
        local_rank=place.local_rank,
        job=place.job if place.rank is not None else None,
        attempt=place.attempt,
        endpoint=word,
    )


def _current(members: list[Member], *, is_job: bool, still: Collection[str] = ()) -> list[Member]:
    """The live processes, and the ended ones of the jobs that they belong to.

    Where all have ended, the job that was asked for by its name, or else the last one; the last
    process where none of them was of a job. Those that are `still` asked for in any case.
    """
    last: list[str] = []
    jobs: set[str | None] = {m.job for m in members if m.is_alive is not False and m.job}
    if is_job and not jobs:
        return members
    if all(m.is_alive is False for m in members):
        by_start = sorted(members, key=lambda m: m.started_ns)
        jobs = {m.job for m in [m for m in by_start if m.job is not None][-1:]}
        if not jobs:
            last = [m.endpoint for m in by_start[-1:]]
    named = {*still, *last}
    return [m for m in members if m.is_alive is not False or m.job in jobs or m.endpoint in named]


def _ended_notes(members: list[Member]) -> list[str]:
    """A sentence on each job of which nothing runs any more."""
    jobs: dict[str | None, list[Member]] = {}
    for member in members:
        jobs.setdefault(member.job, []).append(member)
    return [
        f"{f'job {job}' if job else names_of(those)} has ended: what was recorded is what answers"
        for job, those in jobs.items()
        if all(m.is_alive is False for m in those)
    ]


def _is_mixed(plan: Plan, members: list[Member]) -> bool:
    """Whether one endpoint that names no job stands for more than one job or process."""
    jobs, alone = jobs_among(sift(without_repeats(members))[0])
    return plan.job is None and len(jobs) + len(alone) > 1


def _missing_of(plan: Plan, members: list[Member]) -> list[Member]:
    """The ranks that were asked for by number and are nowhere."""
    seen = {member.rank for member in members}
    first = members[0] if members else None
    return [
        missing_member(
            rank,
            job=first.job if first else None,
            world_size=first.world_size if first else None,
            attempt=first.attempt if first else 0,
        )
        for rank in plan.ranks or ()
        if rank not in seen
    ]


def _missing_ranks(seen: list[Member]) -> list[Member]:
    """The ranks that each job should have and nobody saw."""
    found = []
    for job in {m.job: None for m in seen if m.rank is not None}:
        members = [m for m in seen if m.job == job and m.rank is not None]
        size = _size_of(members) or 0
        ranks = {m.rank for m in members}
        found += [
            missing_member(rank, job=job, world_size=size, attempt=members[0].attempt)
            for rank in range(size)
            if rank not in ranks
        ]
    return found


def _size_of(members: Iterable[Member]) -> int | None:
    """How many ranks a job has, by those who can be believed, where there are any."""
    told = [m for m in members if m.world_size is not None and m.world_size <= MOST_RANKS]
    proven = [m for m in told if m.is_proven]
    return max((m.world_size or 0 for m in proven or told), default=None)


def _membership(words: Sequence[str], members: list[Member], notes: list[str]) -> Membership:
    """What was found, with a note on what was not."""
    ordered = in_order(_each_missing_once(members))
    jobs = {member.job for member in ordered if member.rank is not None}
    if len(jobs) > 1:
        names = ", ".join(sorted(name for name in jobs if name))
        notes.append(f"these are {len(jobs)} jobs ({names}); `job:NAME` asks one of them")
    missing = [m.rank for m in ordered if m.state == "missing" and m.rank is not None]
    if missing:
        notes.append(f"rank{'s' if len(set(missing)) > 1 else ''} {rank_set(missing)} not seen")
    return Membership(
        label=" ".join(words),
        job=next(iter(jobs)) if len(jobs) == 1 else None,
        world_size=_size_of(ordered) if len(jobs) == 1 else None,
        members=ordered,
        notes=tuple(dict.fromkeys(notes)),
    )


def _each_missing_once(members: list[Member]) -> list[Member]:
    """Without a missing rank that an endpoint asked for and the job lacks, too, twice."""
    once: dict[object, Member] = {}
    for member in members:
        is_lost = member.state == "missing" and member.rank is not None
        once.setdefault((member.job, member.rank) if is_lost else id(member), member)
    return list(once.values())
