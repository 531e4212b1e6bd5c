"""One question to many processes at once, and who answered it.

Rules of this file: one deadline for all; one that fails is an outcome, never an exception. The
sentence of the footer is made here, from the outcomes alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

from ...client.base import Process
from ...client.connecting import connect
from ...errors import NoSuchProcess, NotAnswering, ProbingError, ProcessEnded, Unreachable
from ...errors.querying import told_of
from ...messages.frozen import dataclass
from ...units import figure
from .membership import Member, names_of
from .parallel import Done, run_at_once

T = TypeVar("T")

State = Literal["answered", "failed", "late", "dead", "missing"]

AT_ONCE = 256
"""How many members are asked at a time, unless it is said: what one process does with ease."""
_DEAD = (ProcessEnded.code, NoSuchProcess.code)
_PASSING = (Unreachable.exit_code, NotAnswering.exit_code)
_LOOKS_PER_S = 100.0
"""How often a node server is asked at most by one command that looks again and again: half of what
any server lets one sender do unless it is set otherwise."""
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What became of the question at one member.

    Attributes:
        value: Its answer; None where there is none.
        error: Why there is none; of a missing one, None.
        seconds: How long it took, or how long was waited.
        state: ``late``: no answer in time; ``dead``: its process has ended and what was asked
            cannot be had from its record; ``missing``: there was nobody to ask.
        notes: Sentences about how the answer came about.
    """

    member: Member
    value: T | None
    error: ProbingError | None
    seconds: float
    state: State
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Who answered a question, and who did not.

    Attributes:
        asked: How many were expected to answer.
        late_s: How long the late ones were waited for.
    """

    asked: tuple[Member, ...]
    answered: tuple[Member, ...]
    late: tuple[Member, ...]
    dead: tuple[Member, ...]
    failed: tuple[Member, ...]
    missing: tuple[Member, ...]
    late_s: float = 0.0

    @classmethod
    def of(cls, outcomes: Sequence[Outcome[Any]]) -> Coverage:
        """The coverage of an answer."""

        def those(state: State) -> tuple[Member, ...]:
            return tuple(outcome.member for outcome in outcomes if outcome.state == state)

        return cls(
            asked=tuple(outcome.member for outcome in outcomes),
            answered=those("answered"),
            late=those("late"),
            dead=those("dead"),
            failed=those("failed"),
            missing=those("missing"),
            late_s=max((o.seconds for o in outcomes if o.state == "late"), default=0.0),
        )

    @property
    def is_complete(self) -> bool:
        """Whether all answered."""
        return len(self.answered) == len(self.asked)

    def words(self) -> str:
        """The footer's sentence."""
        ranked = all(member.rank is not None for member in self.asked)
        present = len(self.asked) - len(self.missing)
        of = f"{present:,} of " if self.missing else ""
        head = f"asked {of}{_count(len(self.asked), 'rank' if ranked else 'process')}: "
        ended = [member for member in self.answered if member.is_alive is False]
        whose = "its record" if len(ended) == 1 else "their records"
        from_record = f" ({names_of(ended)} from {whose})" if ended else ""
        number = "all" if self.is_complete else f"{len(self.answered):,}"
        parts = [f"{number} answered{from_record}"]
        if self.late:
            parts.append(f"{names_of(self.late)} late ({figure(self.late_s, 2)} s)")
        for members, word in (
            (self.dead, "dead"),
            (self.failed, "failed"),
            (self.missing, "not seen"),
        ):
            if members:
                parts.append(f"{names_of(members)} {word}")
        return head + ", ".join(parts)


def ask_all(
    members: Sequence[Member],
    question: Callable[[Process, Member], T],
    *,
    timeout_s: float,
    token: str | None = None,
    at_once: int = AT_ONCE,
    deadline_s: float | None = None,
) -> tuple[Outcome[T], ...]:
    """Ask all members at once and wait for them; never raises for one that fails.

    Args:
        question: What to ask; runs in a thread of its own for each member.
        timeout_s: The limit of each question that names none, and when to stop waiting for all.
        at_once: How many are asked at a time.
        deadline_s: When to stop waiting instead, for questions that keep limits of their own.

    Returns:
        One outcome for each member, in their order.
    """

    def task(member: Member) -> Callable[[], tuple[T, tuple[str, ...]]]:
        def ask() -> tuple[T, tuple[str, ...]]:
            process = connect(member.endpoint, token=token, timeout_s=timeout_s)
            value = question(process, member)
            return value, tuple(process.notes())

        return ask

    seen = [member for member in members if member.state == "seen"]
    limit_s = timeout_s if deadline_s is None else deadline_s
    began = time.monotonic()
    done = run_at_once([task(m) for m in seen], timeout_s=limit_s, at_once=at_once)
    limit_s = min(limit_s, time.monotonic() - began)  # of one that was not waited for to the end
    ends = (_outcome(m, end, limit_s) for m, end in zip(seen, done, strict=True))
    return tuple(next(ends) if m.state == "seen" else _missing(m) for m in members)


def _outcome(
    member: Member,
    done: Done[tuple[T, tuple[str, ...]]] | None,
    timeout_s: float,
) -> Outcome[T]:
    """How a question ended, in our words."""
    if done is None:
        late = NotAnswering(member.name, timeout_s)
        return Outcome(member=member, value=None, error=late, seconds=timeout_s, state="late")
    if done.value is not None:
        value, notes = done.value
        return Outcome(
            member=member,
            value=value,
            error=None,
            seconds=done.seconds,
            state="answered",
            notes=notes,
        )
    error = told_of(done.error)
    state = state_of(error)
    return Outcome(member=member, value=None, error=error, seconds=done.seconds, state=state)


def state_of(error: ProbingError) -> State:
    """Which kind of failure an error is, ours or one that a node server passed on."""
    if error.code in _DEAD:
        return "dead"
    return "late" if error.exit_code == NotAnswering.exit_code else "failed"


def why_nobody(outcomes: Sequence[Outcome[Any]]) -> ProbingError | None:
    """The first error where nobody has answered; None where somebody has, or nothing failed."""
    if any(outcome.state == "answered" for outcome in outcomes):
        return None
    return next((outcome.error for outcome in outcomes if outcome.error is not None), None)


def is_passing(error: ProbingError) -> bool:
    """Whether one that failed so may answer the same question a moment later."""
    return error.exit_code in _PASSING and error.code not in _DEAD


def look_pause_s(members: Sequence[Member], shortest_s: float) -> float:
    """How long each waits between two looks, that no node server is asked too often by all.

    Args:
        shortest_s: The pause of those that are asked by no server together with many others.
    """
    servers = Counter(member.via for member in members if member.via is not None)
    most = max(servers.values(), default=0)
    return max(shortest_s, min(most / _LOOKS_PER_S, _LONGEST_PAUSE_S))


def _missing(member: Member) -> Outcome[T]:
    return Outcome(member=member, value=None, error=None, seconds=0.0, state="missing")


def _count(number: int, noun: str) -> str:
    plural = {"rank": "ranks", "process": "processes"}[noun]
    return f"{number:,} {noun if number == 1 else plural}"
