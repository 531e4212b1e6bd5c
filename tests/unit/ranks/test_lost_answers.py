"""Ranks that are looked at again and again: answers that are lost, and how often they are asked."""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import types
from collections.abc import Callable
from typing import Any, cast

import pytest

from probing.cluster.job import outcomes, same_step
from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import Outcome, look_pause_s
from probing.cluster.job.same_step import Together, act_together
from probing.cluster.node.__main__ import _settings
from probing.cluster.ranks import eval_together
from probing.cluster.ranks.eval_together import run_together
from probing.errors import (
    ActRefused,
    BadToken,
    NoSuchAction,
    NotAnswering,
    ProbingError,
    ProcessEnded,
    TooManyRequests,
)
from probing.messages.about.act import MARKS, Act, Acts, Asked, Commit, Lr, Prepared, Undo
from probing.messages.about.eval import EvalCommit
from probing.server.access.rates import Rates
from probing.settings import Settings

pytestmark = pytest.mark.anypython

LIMIT_S = 60.0
SLOW, SLOWER = 1.0, 0.1
Lost = Callable[[int], "ProbingError | None"]


def an_act(name: str, state: str, notes: tuple[str, ...] = ()) -> Act:
    """An action as a rank tells of it."""
    return Act(
        number=1, name=name, arguments="", who="", state=state, step=12, changes=(), notes=notes,
        waited_s=None, pause_s=None, age_s=0.0, undo=state == "done",
    )  # fmt: skip


class _Rank:
    """A rank that changes its rate, and whose answers may be lost.

    Args:
        lost: By which error the look of a number is lost, from 1; None where it is answered.
        refuses: Whether it refuses to apply it when it comes to the place.
        hears: Whether it answers that it has heard of the place.
    """

    def __init__(
        self, lost: Lost = lambda _: None, *, refuses: bool = False, hears: bool = True
    ) -> None:
        self.lost, self.refuses, self.hears = lost, refuses, hears
        self.rate, self.looks, self.undos = SLOW, 0, 0

    def notes(self) -> list[str]:
        return []

    def prepare_act(self, _: Asked, *, ranks: int, timeout_s: float) -> Prepared:
        return Prepared(number=1, mark=MARKS[1], position=ranks, step_s=timeout_s / 600)

    def commit_act(self, commit: Commit) -> None:
        if commit.position is not None and not self.refuses:
            self.rate = SLOWER
        if commit.position is not None and not self.hears:
            raise NotAnswering("it", 2)

    def acts(self) -> Acts:
        self.looks += 1
        if (error := self.lost(self.looks)) is not None:
            raise error
        state = "done" if self.rate == SLOWER else "refused"
        return Acts(acts=(an_act("lr", state, () if state == "done" else ("the rate is 0",)),))

    def act(self, asked: Asked) -> Act:
        assert asked == Undo(number=1, alone=True)
        if self.rate == SLOW:
            raise NoSuchAction("action 1 has changed nothing")
        self.rate, self.undos = SLOW, self.undos + 1
        return an_act("undo", "done")


def once(error: ProbingError) -> Lost:
    """Only the first look is lost."""
    return lambda look: error if look == 1 else None


def always(error: ProbingError) -> Lost:
    """Nothing is answered."""
    return lambda _: error


def member(rank: int, via: str | None = None) -> Member:
    """A rank that was found."""
    return Member(
        rank=rank, host="h", pid=rank, world_size=3, endpoint=str(rank), job="gpt", via=via
    )


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited between looks; nobody really waits."""
    pauses: list[float] = []
    clock = types.SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses))
    monkeypatch.setattr(same_step, "time", clock)
    monkeypatch.setattr(eval_together, "time", clock)
    return pauses


def acted(monkeypatch: pytest.MonkeyPatch, *ranks: _Rank) -> Together:
    """What comes of another rate on all of them."""
    monkeypatch.setattr(outcomes, "connect", lambda endpoint, **_: ranks[int(endpoint)])
    members = [member(rank) for rank in range(len(ranks))]
    return act_together(members, Lr(scale=0.1), timeout_s=LIMIT_S)


@pytest.mark.parametrize("error", [NotAnswering("it", 2), TooManyRequests(200)])
def test_a_look_that_is_lost_takes_nothing_back(
    error: ProbingError, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank is asked again, and all have the same rate."""
    ranks = (_Rank(), _Rank(once(error)), _Rank())
    assert acted(monkeypatch, *ranks).failure is None
    assert [rank.rate for rank in ranks] == [SLOWER] * 3
    assert [rank.looks for rank in ranks] == [1, 2, 1]
    assert len(slept) == 1


@pytest.mark.parametrize(
    ("error", "is_waited_for"),
    [(NotAnswering("rank 1", 2), True), (BadToken(missing=False), False),
     (ProcessEnded(1, "it tells nothing"), False)],
)  # fmt: skip
def test_a_rank_that_tells_nothing_any_more_is_named(
    error: ProbingError, *, is_waited_for: bool, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken back on the others: that could make the ranks differ."""
    ranks = (_Rank(), _Rank(always(error)), _Rank())
    failure = acted(monkeypatch, *ranks).failure
    assert failure is not None
    assert failure.message.startswith("rank 1")
    assert failure.message.endswith(
        "; it is not known whether it was applied there; on ranks 0,2 it was."
    )
    assert failure.help == "`probing -t job:gpt act list` shows where it is applied."
    assert [rank.undos for rank in ranks] == [0, 0, 0]
    assert (sum(slept) >= LIMIT_S) == is_waited_for
    assert sum(slept) < LIMIT_S + 1


def test_where_nobody_could_be_read_nothing_is_claimed(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that it was applied on none."""
    ranks = [_Rank(always(NotAnswering("it", 2))) for _ in range(3)]
    failure = acted(monkeypatch, *ranks).failure
    assert failure is not None
    assert failure.message.endswith("it is not known whether it was applied there.")
    assert "none" not in failure.message
    assert slept


def test_what_one_refuses_is_taken_back_where_it_was_not_read(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that answers only by then is like the others, too."""
    late: Lost = lambda _: NotAnswering("it", 2) if sum(slept) < LIMIT_S + 5 else None  # noqa: E731
    ranks = (_Rank(), _Rank(late), _Rank(refuses=True))
    failure = acted(monkeypatch, *ranks).failure
    assert failure is not None
    assert failure.code == ActRefused.code
    says = "the rate is 0; it was applied on ranks 0-1, and taken back there on ranks 0-1."
    assert failure.message == says
    assert [rank.rate for rank in ranks] == [SLOW] * 3


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (_Rank(), "it was applied on rank 0, and taken back there on rank 0, of rank 1 it is"),
        (_Rank(refuses=True), "it was applied on none of ranks 0,2, of rank 1 it is"),
    ],
    ids=["applied", "refused"],
)
def test_a_rank_where_it_could_not_be_taken_back_is_named(
    first: _Rank, says: str, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not said to be on none, and the way to see it is told."""
    ranks = (first, _Rank(always(NotAnswering("it", 2))), _Rank(refuses=True))
    failure = acted(monkeypatch, *ranks).failure
    assert failure is not None
    assert failure.message == f"the rate is 0; {says} not known whether it was applied there."
    assert failure.help == "`probing -t job:gpt act list` shows where it is applied."
    assert slept


def test_a_rank_that_may_have_heard_of_the_place_is_read_before_it_is_told(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the place was lost, and so are its next ones: it is taken back there, too."""
    ranks = (_Rank(), _Rank(once(NotAnswering("it", 2)), hears=False))
    failure = acted(monkeypatch, *ranks).failure
    assert failure is not None
    assert failure.message.endswith("applied on ranks 0-1, and taken back there on ranks 0-1.")
    assert [rank.rate for rank in ranks] == [SLOW] * 2
    assert not slept


class _Training:
    """A rank that is to run code, whose first answer is lost."""

    def __init__(self) -> None:
        self.looks = 0
        self.told: EvalCommit | None = None

    def jobs(self) -> Any:
        self.looks += 1
        if self.looks == 1:
            raise TooManyRequests(200)
        place = Prepared(number=1, mark=MARKS[0], position=4, step_s=0.1)
        return types.SimpleNamespace(jobs=(_Any(prepared=place, apart=None, held=self.told),))

    def commit_eval(self, commit: EvalCommit) -> None:
        self.told = commit


class _Any(types.SimpleNamespace):
    """Of whatever meeting is asked for."""

    @property
    def meeting(self) -> Any:
        return _Equal()


class _Equal:
    """Equal to all."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class _Asking:
    """Asks in turn what a real one asks at once."""

    ranks: tuple[_Training, ...]
    timeout_s: float = LIMIT_S

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member(rank) for rank in range(len(self.ranks)))

    def ask(self, question: Callable[..., Any], **_: object) -> tuple[Outcome[Any], ...]:
        return tuple(
            Outcome(member=one, value=question(rank, one), error=None, seconds=0, state="answered")
            for rank, one in zip(self.ranks, self.members, strict=True)
        )


def test_code_of_all_ranks_still_meets_where_a_look_is_lost(slept: list[float]) -> None:
    """It is not run by each rank for itself, without its collectives."""
    asking = _Asking((_Training(), _Training()))
    _, why = run_together(
        cast("Any", asking), lambda *_: cast("Any", None), limit_s=LIMIT_S, grace_s=0
    )
    assert why is None
    assert [rank.told.position for rank in asking.ranks if rank.told is not None] == [5, 5]
    assert slept


@pytest.mark.parametrize("shortest_s", [0.02, 0.05])
@pytest.mark.parametrize("count", [2, 16, 64, 100])
def test_ranks_behind_one_server_are_not_refused_for_being_many(
    count: int, shortest_s: float
) -> None:
    """All ranks of a machine are looked at, for a minute, from one address."""
    pause = look_pause_s([member(rank, "node:1") for rank in range(count)], shortest_s)
    now, limit = 0.0, Settings().max_requests_per_s
    rates = Rates(lambda: now)
    looks = [(rank * 0.001, rank) for rank in range(count)]
    while now < 60:
        now, rank = heapq.heappop(looks)
        assert rates.take("10.0.0.1", limit), f"refused after {now} s"
        heapq.heappush(looks, (now + pause, rank))


def test_the_pause_is_that_of_the_fullest_server() -> None:
    """Ranks of other machines, or without a server, make nobody wait."""
    far = [member(rank, f"node{rank // 8}:1") for rank in range(1024)]
    assert look_pause_s(far, 0.05) == 0.08
    assert look_pause_s([member(rank) for rank in range(64)], 0.05) == 0.05
    assert look_pause_s([member(rank, "node:1") for rank in range(1024)], 0.05) == 1.0


@pytest.mark.parametrize(("given", "taken"), [({}, 2000.0), ({"R": "5000"}, 5000.0)])
def test_a_node_server_takes_more_of_one_sender(
    given: dict[str, str], taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several who ask may have one address, and each asks about many ranks."""
    for value in given.values():
        monkeypatch.setenv("PROBING_MAX_REQUESTS_PER_S", value)
    options = argparse.Namespace(listen="", tls_cert="", tls_key="", token_file="", allow_eval=0)
    assert _settings(options).max_requests_per_s == taken
