"""Code of all ranks at one step: nobody is told to begin before all stand there."""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
from collections.abc import Callable
from typing import Any, cast

import pytest

from probing.cluster.job import outcomes
from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import Outcome
from probing.cluster.ranks import eval_together
from probing.cluster.ranks.eval_together import run_together
from probing.errors import EvalCancelled, EvalNotAllowed, ProbingError
from probing.messages.about.act import MARKS, Prepared
from probing.messages.about.eval import EvalCommit, EvalJob
from probing.messages.common import decode_error, encode_error
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython

LIMIT_S = 60.0


class _Clock:
    """Time passes where somebody sleeps, and where an answer takes long."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class _Rank:
    """A rank of a job that trains, with an eval that waits for its appointment.

    Args:
        late: How often it hears of a place when it has come by it.
        slow_s: How long it takes to say where it is.
        comes: At how many looks it is not held yet, once it was told of the place.
        gone: Whether its eval ends before it comes there.
    """

    def __init__(
        self, clock: _Clock, *, late: int = 0, slow_s: float = 0.0, comes: int = 0,
        gone: bool = False,
    ) -> None:  # fmt: skip
        self._clock, self._late, self._slow_s = clock, late, slow_s
        self._comes, self._gone = comes, gone
        self._place: EvalCommit | None = None
        self.told: list[EvalCommit] = []

    def jobs(self) -> Any:
        self._clock.now, self._slow_s = self._clock.now + self._slow_s, 0.0
        if self._place is not None and self._gone:
            return types.SimpleNamespace(jobs=())
        self._comes -= self._place is not None
        job = EvalJob(
            number=1, who="", code="", state="waiting", age_s=0.0, meeting="0" * 16,
            prepared=Prepared(number=1, mark=MARKS[0], position=4, step_s=0.1),
            held=self._place if self._comes < 0 else None,
        )  # fmt: skip
        return types.SimpleNamespace(jobs=(job,))

    def commit_eval(self, commit: EvalCommit) -> None:
        self.told.append(commit)
        if commit.position is None or commit.begins:
            return
        assert commit.waits
        if self._late:
            self._late, self._place = self._late - 1, None
            refused = EvalCancelled("this rank has come by the agreed step already")
            raise decode_error(encode_error(refused))  # as it comes from an agent
        self._place = commit


@dataclasses.dataclass(frozen=True)
class _Asking:
    """Asks in turn what a real one asks at once."""

    ranks: tuple[_Rank, ...]
    timeout_s: float = LIMIT_S

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(
            Member(rank=rank, host="h", pid=rank, world_size=2, endpoint=str(rank), job="gpt")
            for rank in range(len(self.ranks))
        )

    def ask(self, question: Callable[..., Any], **_: object) -> tuple[Outcome[Any], ...]:
        return tuple(
            _outcome(one, functools.partial(question, rank, one))
            for rank, one in zip(self.ranks, self.members, strict=True)
        )


def _outcome(member: Member, answer: Callable[[], Any]) -> Outcome[Any]:
    try:
        value, error = answer(), None
    except ProbingError as raised:
        value, error = None, raised
    state = outcomes.state_of(error) if error is not None else "answered"
    return Outcome(member=member, value=value, error=error, seconds=0, state=state)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """Nobody really waits."""
    clock = _Clock()
    monkeypatch.setattr(eval_together, "time", clock)
    same = types.SimpleNamespace(token_hex=lambda _: "0" * 16)
    monkeypatch.setattr(eval_together, "secrets", same)
    return clock


def _threads() -> list[str]:
    """The names of the threads of this process."""
    return [thread.name for thread in threading.enumerate()]


def met(*ranks: _Rank) -> str | None:
    """Why they have not run it at one step."""
    _, why = run_together(
        cast("Any", _Asking(ranks)), lambda *_: cast("Any", None), limit_s=LIMIT_S, grace_s=0
    )
    return why


def test_all_are_told_to_begin_once_all_are_held(clock: _Clock) -> None:
    """The one that comes last is waited for; then it is the place that all have agreed on."""
    ranks = [_Rank(clock, comes=0), _Rank(clock, comes=7)]
    assert met(*ranks) is None
    for rank in ranks:
        place, word = rank.told
        assert (place.position, place.more, place.begins) == (5, 6, False)
        assert word == dataclasses.replace(place, begins=True)
    assert clock.now == pytest.approx(7 * 0.02)


def test_ctrl_c_while_they_agree_waits_for_no_rank(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked leaves, though no rank has ended its code."""
    is_over = threading.Event()

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", interrupt)
    asking = cast("Any", _Asking((_Rank(clock, comes=2),) * 2))
    run = cast("Any", lambda *_: is_over.wait(DEADLINE_S))
    try:
        with pytest.raises(KeyboardInterrupt):
            run_together(asking, run, limit_s=LIMIT_S, grace_s=0)
        assert not is_over.is_set()
        assert "run together" in _threads()
    finally:
        is_over.set()


def test_a_rank_that_refuses_the_code_is_not_waited_for(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There will be no eval to be found there: what it says is told at once."""
    ranks = [_Rank(clock, gone=True), _Rank(clock, gone=True)]
    for rank in ranks:
        rank.commit_eval(EvalCommit(meeting="0" * 16, position=4, waits=True))
    pass_time = clock.sleep

    def sleep(seconds: float) -> None:
        wait_until(lambda: "run together" not in _threads(), "both have refused")
        pass_time(seconds)

    def refuse(*_: object) -> Any:
        raise EvalNotAllowed

    monkeypatch.setattr(clock, "sleep", sleep)
    outcomes, why = run_together(cast("Any", _Asking(tuple(ranks))), refuse, limit_s=LIMIT_S,
                                 grace_s=0)  # fmt: skip
    assert [o.error.code for o in outcomes if o.error is not None] == [EvalNotAllowed.code] * 2
    assert why is not None
    assert "code that comes over TCP is not run here" in why
    assert clock.now < 1


def test_a_rank_that_has_come_by_the_place_is_told_one_further_on(clock: _Clock) -> None:
    """And all others with it, before anybody begins."""
    ranks = [_Rank(clock), _Rank(clock, late=2)]
    assert met(*ranks) is None
    for rank in ranks:
        assert [word.more for word in rank.told] == [6, 24, 96, 96]
        assert [word.begins for word in rank.told] == [False, False, False, True]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"late": 9}, "rank 1: the code was not run: this rank has come by the agreed step"),
        ({"gone": True}, "rank 1: it has ended there"),
        ({"comes": 10**6}, "rank 1: it has not come to the agreed step in time"),
    ],
    ids=["late", "gone", "slow"],
)
def test_nobody_is_told_to_begin_where_one_is_not_held(
    clock: _Clock, more: dict[str, Any], says: str
) -> None:
    """All run it by themselves; the ranks that are held have time left to hear of it."""
    ranks = [_Rank(clock), _Rank(clock, **more)]
    why = met(*ranks)
    assert why is not None
    assert why.startswith(says)
    for rank in ranks:
        assert rank.told[-1] == EvalCommit(meeting="0" * 16)
        assert not any(word.begins for word in rank.told)
    assert clock.now < LIMIT_S


def test_the_place_is_as_far_as_the_word_took_to_go_round(clock: _Clock) -> None:
    """By the time that really passed until all had said where they are."""
    ranks = [_Rank(clock), _Rank(clock, slow_s=2.0)]
    assert met(*ranks) is None
    assert [rank.told[0].more for rank in ranks] == [46, 46]  # 0.52 s, and twice 2 s
