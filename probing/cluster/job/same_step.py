"""One action on all ranks of a job at the same step, or on none.

Rules of this file: in three rounds. First every rank prepares the action, which is where almost
all refusals come, and says where it is. Then all are told one place that lies ahead of the
foremost, far enough for that to reach them; where a rank is beyond it, all are told one further on.
Where that is too late as well, or a rank cannot be reached, it is given up on all. Last it is read
from each what came of it, and where one has failed after all, it is taken back on the others. No
rank ever waits for another one on our account.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...errors import ActRefused, ActTimedOut, ProbingError, RemoteError
from ...messages import rank_paths
from ...messages.about.act import MARKS, Commit, Prepared, Undo
from ...messages.frozen import dataclass
from .membership import Member
from .outcomes import AT_ONCE, Outcome, ask_all
from .rank_sets import rank_set

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.about.act import Act, Asked

T = TypeVar("T")

_MARGIN_S = 0.5
_MARGIN_PER_RANK_S = 0.01
_STEP_S = 0.5
"""What a step is taken to last where none has ended yet."""
_TRIES = 3
"""How often a place is named in all: by a slow last step, the first may come too soon."""
_FURTHER = 4
_POLL_S = 0.05
_LONGEST_S = 86_400.0
_DONE = ("done", "in force")


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What came of an action that was asked of several ranks.

    Attributes:
        outcomes: One for each rank, in their order.
        failure: Why it is not in place on all of them; None where it is.
    """

    outcomes: tuple[Outcome[Act], ...]
    failure: ProbingError | None = None


def _by_itself(members: Iterable[Member]) -> str:
    """What else can be asked."""
    first = next(iter(members))
    whole = shlex.quote(rank_paths.of_ranks(first.job))
    return (
        "Where the ranks need not stay alike,"
        f" `probing -t {shlex.quote(first.target)} act ...` asks one by itself;"
        f" `probing -t {whole} backtrace` shows where all are."
    )


def act_together(
    members: Sequence[Member], asked: Asked, *, timeout_s: float, token: str | None = None
) -> Together:
    """Apply an action on several ranks, at one step of all; never raises for one that fails.

    Args:
        timeout_s: How long each rank may take to come to the place.
    """
    return _Acting(members, timeout_s, token).act(asked)


class _Acting:
    """The rounds of one action."""

    def __init__(self, members: Sequence[Member], timeout_s: float, token: str | None) -> None:
        self._members = tuple(members)
        self._timeout_s = timeout_s
        self._token = token

    def act(self, asked: Asked) -> Together:
        """See `act_together`."""
        count, limit_s = len(self._members), self._timeout_s
        began = time.monotonic()
        prepared = self._ask(
            self._members,
            lambda process, _: process.prepare_act(asked, ranks=count, timeout_s=limit_s),
        )
        places = {o.member: o.value for o in prepared if o.value is not None}
        failure = _first_failure(prepared) or no_place(places, limit_s)
        if failure is None:
            spent_s = time.monotonic() - began
            position, more = meeting_place(list(places.values()), spent_s)
            failure = self._agree(places, position, more)
        if failure is not None:
            self._commit(places, None, 0)
        return self._read(prepared, places, failure)

    def _agree(
        self, places: dict[Member, Prepared], position: int, more: int
    ) -> ProbingError | None:
        """Tell all the place, and one further on where a rank has come by it; why it is none."""
        failures = []
        for _ in range(_TRIES):
            agreed = self._commit(places, position, more)
            failure = _first_failure(agreed)
            if failure is None:
                return None
            failures.append(failure)
            if not all(o.error is None or isinstance(o.error, ActRefused) for o in agreed):
                break
            more *= _FURTHER
        return failures[0]

    def _commit(
        self, places: dict[Member, Prepared], position: int | None, more: int
    ) -> tuple[Outcome[bool], ...]:
        """Tell all that have prepared it where they apply it, or that they shall not."""

        def tell(process: Process, member: Member) -> bool:
            number = places[member].number
            process.commit_act(Commit(number=number, position=position, more=more))
            return True

        return self._ask(tuple(places), tell)

    def _read(
        self,
        prepared: tuple[Outcome[Prepared], ...],
        places: dict[Member, Prepared],
        failure: ProbingError | None,
    ) -> Together:
        """What came of it on each rank; taken back where it is not so on all."""
        read = self._ask(
            tuple(places),
            lambda process, member: _wait_settled(process, places[member].number),
            deadline_s=_LONGEST_S,
        )
        found = {outcome.member: outcome for outcome in read}
        acts = [outcome.value for outcome in read if outcome.value is not None]
        applied = {o.member: o.value for o in read if o.value is not None and _is_done(o.value)}
        if failure is None:
            bad = next((act for act in acts if not _is_done(act)), None)
            failure = _first_failure(read) or (self._refusal_of(bad) if bad else None)
        if failure is not None:
            failure = self._taken_back(applied, failure) if applied else self._nowhere(failure)
        outcomes = tuple(found.get(o.member, _without_value(o)) for o in prepared)
        return Together(outcomes=outcomes, failure=failure)

    def _refusal_of(self, act: Act) -> ProbingError:
        """Why an action was not applied."""
        why = "; ".join(note.rstrip(".") for note in act.notes) or f"it was {act.state}"
        way_out = f"Nothing was changed. {_by_itself(self._members)}"
        is_late = act.state == "timed out"
        error = ActTimedOut(self._timeout_s) if is_late else ActRefused(why)
        return _saying(error, f"{why}.", help=way_out)

    def _nowhere(self, failure: ProbingError) -> ProbingError:
        """The same reason, with the ranks on which nothing was changed for it."""
        where = f"it was applied on none of {_names(self._members)}"
        return _saying(failure, f"{failure.message.rstrip('.')}; {where}.")

    def _taken_back(self, applied: dict[Member, Act], failure: ProbingError) -> ProbingError:
        """Take it back where it was applied; says what has been and what could not be."""
        undone = self._ask(
            tuple(m for m, act in applied.items() if act.undo),
            lambda process, m: process.act(Undo(number=applied[m].number, alone=True)),
        )
        back = [o.member for o in undone if o.value is not None]
        left = [m for m in applied if m not in back]
        parts = [
            f"it was applied on {_names(list(applied))}, and taken back there on {_names(back)}"
        ]
        if left:
            parts = [*parts[: bool(back)], f"it stays applied on {_names(left)}, and on no other"]
        return _saying(failure, f"{failure.message.rstrip('.')}; {', '.join(parts)}.")

    def _ask(
        self,
        members: Sequence[Member],
        question: Callable[[Process, Member], T],
        *,
        deadline_s: float | None = None,
    ) -> tuple[Outcome[T], ...]:
        """Ask them at once."""
        return ask_all(
            members,
            question,
            timeout_s=self._timeout_s,
            token=self._token,
            at_once=max(AT_ONCE, len(members)),
            deadline_s=deadline_s,
        )


def meeting_place(places: Sequence[Prepared], spent_s: float = 0.0) -> tuple[int, int]:
    """A position that no rank has reached, and how many steps later the place is.

    That is as many as pass while the word goes round.

    Args:
        spent_s: How long it took to hear from all ranks: on a busy machine, or over a slow network,
            telling them takes as long.
    """
    position = max(place.position for place in places) + 1
    steps = [place.step_s for place in places if place.step_s is not None]
    margin_s = _MARGIN_S + _MARGIN_PER_RANK_S * len(places) + 2 * spent_s
    return position, math.ceil(margin_s / min(steps, default=_STEP_S))


def _wait_settled(process: Process, number: int) -> Act:
    """The action, once it has been applied or given up."""
    while True:
        act = next((act for act in process.acts().acts if act.number == number), None)
        if act is not None and act.state is not None:
            return act
        time.sleep(_POLL_S)


def _is_done(act: Act) -> bool:
    """Whether it has been applied."""
    return act.state in _DONE


def _first_failure(outcomes: Sequence[Outcome[T]]) -> ProbingError | None:
    """The first reason why not all have done it, and which others have not either."""
    failed = [o for o in outcomes if o.error is not None or o.state == "missing"]
    if not failed:
        return None
    first, others = failed[0], [o.member for o in failed[1:]]
    name, error = first.member.name, first.error
    said = "was not seen" if error is None else error.message.rstrip(".")
    apart = " " if error is None else ": "
    named = said if said.startswith(f"{name} ") else f"{name}{apart}{said}"
    if others:
        named = f"{named}; nor could {_names(others)}"
    return ActRefused(named) if error is None else _saying(error, f"{named}.")


def _saying(error: ProbingError, message: str, *, help: str | None = None) -> ProbingError:
    """An error of the same kind, of more than one rank."""
    return RemoteError(
        code=error.code,
        status=error.status,
        exit_code=error.exit_code,
        message=message,
        help=help or error.help,
        detail=error.detail,
    )


def no_place(places: dict[Member, Prepared], limit_s: float) -> ProbingError | None:
    """Why ranks that all could apply it have no place in common, as far as that can be told now."""
    by_mark = {mark: [m for m, p in places.items() if p.mark == mark] for mark in MARKS}
    begun, counting, whole = by_mark.values()
    if counting and (begun or whole):
        return ActRefused(
            "no step is known to be the same on all: some have begun collectives of the job's"
            f" process group ({_names([*begun, *whole])}), some not ({_names(counting)})",
            help=f"Nothing was changed. Ask again once all of them train. {_by_itself(places)}",
        )
    if begun and whole:
        return ActRefused(
            "no step is known to be the same on all: gloo counts collectives otherwise on each"
            f" rank, and on {_names(begun)} not all of them have been recorded",
            help=f"Nothing was changed. {_by_itself(places)}",
        )
    if begun or whole or not places:
        return None
    return _too_far_apart(places, limit_s)


def _too_far_apart(places: dict[Member, Prepared], limit_s: float) -> ProbingError | None:
    """Why ranks that count their steps do not come to the same one in time."""
    position, more = meeting_place(list(places.values()))
    last = min(places, key=lambda member: places[member].position)
    first = max(places, key=lambda member: places[member].position)
    behind = position + more - places[last].position
    if behind * (places[last].step_s or _STEP_S) <= limit_s:
        return None
    return ActRefused(
        "no collectives of the whole job tell which step is the same on all ranks, and by the count"
        f" of their steps they do not meet within {limit_s:g} s: {first.name} is in step"
        f" {places[first].position}, {last.name} in step {places[last].position}",
        help=f"Nothing was changed. --timeout SECONDS waits longer. {_by_itself(places)}",
    )


def _without_value(outcome: Outcome[Prepared]) -> Outcome[Act]:
    """The outcome of a rank that has not even prepared it."""
    return Outcome(
        member=outcome.member,
        value=None,
        error=outcome.error,
        seconds=outcome.seconds,
        state=outcome.state,
    )


def _names(members: Sequence[Member]) -> str:
    """Ranks as a set."""
    ranks = [m.rank for m in members if m.rank is not None]
    return f"rank{'s' if len(ranks) > 1 else ''} {rank_set(ranks)}"
