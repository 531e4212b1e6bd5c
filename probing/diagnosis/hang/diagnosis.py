"""From members to verdicts: two looks at the record of each, and at its stacks in between.

Rules of this file: who only waits is looked at once. Every question has a deadline of its own, so
that a rank whose stack cannot be had still gives its record. Each job is judged by itself;
processes without a rank one by one.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...cluster.job.outcomes import Coverage, Outcome, ask_all
from ...errors import BadEndpoint
from ...linux.process import start_time
from .evidence import Call, RankEvidence, State, Verdict
from .judging import judge
from .seen.collection import (
    Stacks,
    absent,
    evidence_of,
    is_joining,
    may_get_on,
    stack_again,
    stacks_of,
    unasked,
)
from .seen.flights import by_flights, flight_of, is_blind
from .seen.others import Others, awaits_others, others_of
from .seen.record import Newest, newest_of

if TYPE_CHECKING:
    from ...client.base import Process
    from ...cluster.job.members import Member
    from ...messages.common import Backtrace

T = TypeVar("T")

LOOK_S = 1.0
"""How far apart the two looks at a rank's record are, at least."""
_STACKS_S = 12.0
_PART, _LEAST_S = 0.5, 0.2
"""What part of the time that is left one of several questions may take, and how long at least."""
_JOB = "job:"
"""Who names a job may have others beside it."""
_STATES: dict[str, State] = {"missing": "missing", "dead": "dead"}


def diagnose(
    members: Sequence[Member],
    *,
    timeout_s: float,
    token: str | None = None,
    asked: str = "-t all",
) -> tuple[Verdict, ...]:
    """Say of every job among some processes why it does not go on, or that it does.

    Args:
        timeout_s: How long any one question may take.
        asked: How the command named them, for what it says to type next.

    Raises:
        NotPython: None of them runs Python.
    """
    found = diagnose_each(members, timeout_s=timeout_s, token=token, asked=asked)
    return tuple(verdict for _, verdict in found)


def diagnose_each(
    members: Sequence[Member],
    *,
    timeout_s: float,
    token: str | None,
    asked: str,
    whole_s: float = math.inf,
) -> tuple[tuple[tuple[Member, ...], Verdict], ...]:
    """As `diagnose`, with the members that each verdict is about.

    Args:
        whole_s: How long all of it may take, whatever a question may.

    Raises:
        NotPython: None of them runs Python.
    """
    clock = _Clock(timeout_s, whole_s)
    outcomes = _look_at(members, clock, token=token)
    left = {o.member.endpoint: alone for o in outcomes if (alone := _without_agent(o))}
    if left:  # its agent has left it meanwhile: what is seen from outside is what there is
        seen = iter(_look_at(list(left.values()), clock, token=token))
        outcomes = [next(seen) if o.member.endpoint in left else o for o in outcomes]

    def flights(asked: Sequence[Member]) -> dict[str, tuple[Call, ...]]:
        return _values(ask_all(asked, flight_of, timeout_s=clock.limit_s(), token=token))

    groups = _by_job(outcomes)
    has_others = len(groups) > 1 or _JOB in asked
    return tuple(
        (
            tuple(outcome.member for outcome in group),
            _judge(group, flights, asked, has_others=has_others),
        )
        for group in groups
    )


class _Clock:
    """How long the next question may take, of those that are to end together."""

    def __init__(self, timeout_s: float, whole_s: float) -> None:
        self._timeout_s, self._end = timeout_s, time.monotonic() + whole_s

    def limit_s(self, most_s: float = math.inf, *, part: float = 1.0) -> float:
        """The limit of a question.

        Args:
            part: How much of what is left it may take at most; others come after it.
        """
        left_s = max(_LEAST_S, part * (self._end - time.monotonic()))
        return min(self._timeout_s, most_s, left_s)


def _look_at(
    members: Sequence[Member], clock: _Clock, *, token: str | None
) -> Sequence[Outcome[RankEvidence]]:
    """Look at all members twice, about a second apart.

    Raises:
        NotPython: None of them runs Python.
    """
    began = time.monotonic()
    first = ask_all(members, newest_of, timeout_s=clock.limit_s(part=_PART), token=token)
    before: dict[str, Newest] = _values(first)
    limit_s = clock.limit_s(_STACKS_S, part=_PART)
    stacks: dict[str, Stacks] = _values(ask_all(members, stacks_of, timeout_s=limit_s, token=token))
    _refuse_others(members, stacks)
    time.sleep(max(0.0, LOOK_S - (time.monotonic() - began)))
    busy = [m for m in members if m.endpoint in stacks and may_get_on(stacks[m.endpoint])]

    def second(process: Process, member: Member) -> Backtrace | None:
        return stack_again(process, locals=is_joining(stacks[member.endpoint]))

    limit_s = clock.limit_s(_STACKS_S, part=_PART)
    again: dict[str, Backtrace] = _values(ask_all(busy, second, timeout_s=limit_s, token=token))

    waiting = [m for m in busy if _is_here(m) and _awaits_others(stacks[m.endpoint])]

    def beside(_: Process, member: Member) -> Others:
        trace = stacks[member.endpoint].trace
        return others_of(trace) if trace is not None else Others()

    limit_s = clock.limit_s(_STACKS_S, part=_PART)
    others: dict[str, Others] = _values(ask_all(waiting, beside, timeout_s=limit_s, token=token))

    def look(process: Process, member: Member) -> RankEvidence:
        key = member.endpoint
        return evidence_of(
            process,
            member,
            before.get(key),
            stacks.get(key),
            again=again.get(key),
            others=others.get(key),
        )

    return ask_all(members, look, timeout_s=clock.limit_s(), token=token)


def _is_here(member: Member) -> bool:
    """Whether a process is one of this machine, so that others can be looked at beside it."""
    return os.path.isabs(member.endpoint) or member.endpoint.isdecimal()


def _awaits_others(stacks: Stacks) -> bool:
    return stacks.trace is not None and awaits_others(stacks.trace)


def _without_agent(outcome: Outcome[RankEvidence]) -> Member | None:
    """A member whose run folder has gone while it was looked at, as one that lives without it."""
    member, pid = outcome.member, outcome.member.pid
    is_gone = isinstance(outcome.error, BadEndpoint) and os.path.isabs(member.endpoint)
    if not is_gone or pid is None or start_time(pid) is None:
        return None
    return dataclasses.replace(member, endpoint=str(pid), started_ns=0)


def _refuse_others(members: Sequence[Member], stacks: Mapping[str, Stacks]) -> None:
    """Raise where nobody who was named runs Python; beside others it is a verdict of its own."""
    found = [seen.not_python for m in members if (seen := stacks.get(m.endpoint)) is not None]
    errors = [error for error in found if error is not None]
    if errors and len(errors) == len(members):
        raise errors[0]


def _judge(
    outcomes: Sequence[Outcome[RankEvidence]],
    flights: Callable[[Sequence[Member]], dict[str, tuple[Call, ...]]],
    asked: str,
    *,
    has_others: bool,
) -> Verdict:
    evidence = [outcome.value or _absent(outcome) for outcome in outcomes]
    if len(evidence) > 1 and any(map(is_blind, evidence)):
        evidence = by_flights(evidence, flights([outcome.member for outcome in outcomes]))
    sizes = [o.member.world_size for o in outcomes if o.member.world_size is not None]
    return judge(
        evidence,
        world=range(max(sizes, default=0)),
        coverage=Coverage.of(outcomes).words(),
        job=outcomes[0].member.job,
        asked=asked,
        has_others=has_others,
    )


def _absent(outcome: Outcome[RankEvidence]) -> RankEvidence:
    state, why = _STATES.get(outcome.state), outcome.error.message if outcome.error else None
    return unasked(outcome.member, why) if state is None else absent(outcome.member, state, why)


def _by_job(outcomes: Sequence[Outcome[RankEvidence]]) -> list[list[Outcome[RankEvidence]]]:
    """The outcomes of each job; those without a rank each for themselves."""
    jobs: dict[object, list[Outcome[RankEvidence]]] = {}
    for outcome in outcomes:
        member = outcome.member
        key = ("job", member.job) if member.rank is not None else ("process", member.endpoint)
        jobs.setdefault(key, []).append(outcome)
    return list(jobs.values())


def _values(outcomes: Sequence[Outcome[T | None]]) -> dict[str, T]:
    """The answers by endpoint."""
    return {o.member.endpoint: o.value for o in outcomes if o.value is not None}
