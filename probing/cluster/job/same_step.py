"""One action on all ranks of a job at the same step, or on none.

Rules of this file: in three rounds. First every rank prepares the action, which is where almost
all refusals come, and says where it is. Then all are told one place that lies ahead of the
foremost, far enough for that to reach them; where a rank is beyond it, all are told one further on.
Where that is too late as well, or a rank cannot be reached, it is given up on all. Last it is read
from each what came of it, and where one has refused after all, it is taken back on the others. An
answer that is lost then says nothing of the rank: it is asked again, and nothing is taken back for
it. No rank ever waits for another one on our account.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from ...client.base import Process
from ...errors import ActRefused, ActTimedOut, ProbingError
from ...messages import rank_paths
from ...messages.about.act import MARKS, Act, Asked, Commit, Prepared, Undo
from ...messages.frozen import dataclass
from .membership import Member
from .outcomes import AT_ONCE, Outcome, ask_all, is_passing, look_pause_s
from .places import STEP_S, agree_on_place, first_failure, meeting_place, ranks_of, saying

T = TypeVar("T")

_POLL_S = 0.05
_LONGEST_S = 86_400.0
_DONE = ("done", "in force")

_End = Literal["taken back", "stays", "never applied"]
"""What has become of an action on a rank where it was to be taken back."""


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
        failure = first_failure(prepared) or no_place(places, limit_s)
        is_told = failure is None
        if is_told:
            spent_s = time.monotonic() - began
            position, more = meeting_place(list(places.values()), spent_s)
            failure = self._agree(places, position, more)
        if failure is not None:
            self._commit(places, None, 0)
        return self._read(prepared, places, failure, is_told=is_told)

    def _agree(
        self, places: dict[Member, Prepared], position: int, more: int
    ) -> ProbingError | None:
        """Tell all the place, and one further on where a rank has come by it; why it is none."""
        _, failure = agree_on_place(
            lambda more: self._commit(places, position, more), more, ActRefused
        )
        return failure

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
        *,
        is_told: bool,
    ) -> Together:
        """What came of it on each rank; taken back where one has refused it.

        Args:
            is_told: Whether any rank may have heard of a place: without one it is applied nowhere.
        """
        patience_s = self._timeout_s if failure is None else 0.0
        read = self._ask(
            tuple(places),
            lambda process, member: self._settled(process, places[member], patience_s),
            deadline_s=_LONGEST_S,
        )
        found = {outcome.member: outcome for outcome in read}
        acts = {o.member: o.value for o in read if o.value is not None}
        applied = {member: act for member, act in acts.items() if _is_done(act)}
        unread = {
            o.member: places[o.member]
            for o in read
            if is_told and o.value is None and o.state != "dead"
        }
        if failure is None:
            bad = next((act for act in acts.values() if not _is_done(act)), None)
            failure = self._refusal_of(bad) if bad else None
        if failure is not None:
            failure = self._taken_back(applied, unread, failure)
        elif (lost := first_failure(read)) is not None:
            failure = self._not_known(applied, lost)
        outcomes = tuple(found.get(o.member, _without_value(o)) for o in prepared)
        return Together(outcomes=outcomes, failure=failure)

    def _refusal_of(self, act: Act) -> ProbingError:
        """Why an action was not applied."""
        why = "; ".join(note.rstrip(".") for note in act.notes) or f"it was {act.state}"
        way_out = f"Nothing was changed. {_by_itself(self._members)}"
        is_late = act.state == "timed out"
        error = ActTimedOut(self._timeout_s) if is_late else ActRefused(why)
        return saying(error, f"{why}.", help=way_out)

    def _not_known(self, applied: dict[Member, Act], lost: ProbingError) -> ProbingError:
        """That nobody can say what came of it on some, and that it stays on the others."""
        elsewhere = f"; on {ranks_of(list(applied))} it was" if applied else ""
        said = f"{lost.message.rstrip('.')}; it is not known whether it was applied there"
        return saying(lost, f"{said}{elsewhere}.", help=self._where_to_look())

    def _taken_back(
        self, applied: dict[Member, Act], unread: dict[Member, Prepared], failure: ProbingError
    ) -> ProbingError:
        """Take it back where it was applied; says what has been and what could not be."""
        ends = self._take_back(applied, unread)
        was = [m for m in ends if m in applied or ends[m] in ("taken back", "stays")]
        back = [m for m, end in ends.items() if end == "taken back"]
        left = [m for m in was if m not in back]
        unknown = [m for m in unread if ends[m] is None]
        others = [member for member in self._members if member not in unknown]
        parts = []
        if back:
            parts = [f"it was applied on {ranks_of(was)}, and taken back there on {ranks_of(back)}"]
        elif not was and others:
            parts = [f"it was applied on none of {ranks_of(others)}"]
        if left:
            rest = "" if unknown else ", and on no other"
            parts.append(f"it stays applied on {ranks_of(left)}{rest}")
        if unknown:
            parts.append(f"of {ranks_of(unknown)} it is not known whether it was applied there")
        said = f"{failure.message.rstrip('.')}; {', '.join(parts)}."
        return saying(failure, said, help=self._where_to_look() if left or unknown else None)

    def _take_back(
        self, applied: dict[Member, Act], unread: dict[Member, Prepared]
    ) -> dict[Member, _End | None]:
        """What has become of it there; None where that cannot be told."""

        def take_back(process: Process, member: Member) -> _End:
            act = applied.get(member)
            if act is None:
                act = self._settled(process, unread[member], self._timeout_s / 2)
            if not _is_done(act):
                return "never applied"
            if not act.undo:
                return "stays"
            process.act(Undo(number=act.number, alone=True))
            return "taken back"

        members = [m for m in self._members if m in applied or m in unread]
        return {o.member: o.value for o in self._ask(members, take_back)}

    def _settled(self, process: Process, place: Prepared, patience_s: float) -> Act:
        """The action at a rank, once it has been applied or given up."""
        pause = look_pause_s(self._members, _POLL_S)
        return _wait_settled(process, place.number, patience_s=patience_s, pause_s=pause)

    def _where_to_look(self) -> str:
        """What shows where it is applied."""
        whole = shlex.quote(rank_paths.of_ranks(self._members[0].job))
        return f"`probing -t {whole} act list` shows where it is applied."

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


def _wait_settled(process: Process, number: int, *, patience_s: float, pause_s: float) -> Act:
    """The action, once it has been applied or given up.

    Args:
        patience_s: For how long answers may be lost: while a checkpoint is written or a model
            compiled, the rank may hold the GIL.
        pause_s: How long to wait between two looks.
    """
    answered = time.monotonic()
    while True:
        try:
            acts = process.acts().acts
        except ProbingError as error:
            if not is_passing(error) or time.monotonic() - answered >= patience_s:
                raise
        else:
            answered = time.monotonic()
            act = next((act for act in acts if act.number == number), None)
            if act is not None and act.state is not None:
                return act
        time.sleep(pause_s)


def _is_done(act: Act) -> bool:
    """Whether it has been applied."""
    return act.state in _DONE


def no_place(places: dict[Member, Prepared], limit_s: float) -> ProbingError | None:
    """Why ranks that all could apply it have no place in common, as far as that can be told now."""
    by_mark = {mark: [m for m, p in places.items() if p.mark == mark] for mark in MARKS}
    begun, counting, whole = by_mark.values()
    if counting and (begun or whole):
        return ActRefused(
            "no step is known to be the same on all: some have begun collectives of the job's"
            f" process group ({ranks_of([*begun, *whole])}), some not ({ranks_of(counting)})",
            help=f"Nothing was changed. Ask again once all of them train. {_by_itself(places)}",
        )
    if begun and whole:
        return ActRefused(
            "no step is known to be the same on all: gloo counts collectives otherwise on each"
            f" rank, and on {ranks_of(begun)} not all of them have been recorded",
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
    if behind * (places[last].step_s or STEP_S) <= limit_s:
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
