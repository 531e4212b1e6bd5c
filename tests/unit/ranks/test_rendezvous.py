"""The place of an action that several ranks apply: agreed on without any of them waiting."""

from __future__ import annotations

from typing import Any

import pytest

from probing.agent.actions.pending import PendingAction
from probing.agent.actions.place import too_late
from probing.agent.audit.request_log import Sender
from probing.agent.sources.actions.moments.rendezvous import Rendezvous
from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import Outcome
from probing.cluster.job.places import agree_on_place, first_failure, meeting_place
from probing.cluster.job.same_step import no_place
from probing.errors import ActRefused, NotAnswering, ProbingError
from probing.messages.about.act import Lr, Prepared
from probing.messages.common import decode_error, encode_error

pytestmark = pytest.mark.anypython

ENDS = [4, 7, 9, 9, 12, 15, 18]
"""Collectives begun at the ends of a training's steps, those of an evaluation among them."""


class Rank:
    """A rank that goes from one end of a step to the next."""

    def __init__(self) -> None:
        self.steps = 0
        self.applied_at: int | None = None
        self.rendezvous = Rendezvous(lambda: ENDS[self.steps])

    def go_to(self, step: int) -> None:
        """Come by the ends of steps, up to one."""
        while self.steps < step:
            if self.rendezvous.is_here():
                self.applied_at = self.steps
            self.steps += 1


@pytest.mark.parametrize(("position", "more", "place"), [(8, 0, 2), (8, 2, 4), (10, 1, 5)])
@pytest.mark.parametrize("told_at", [0, 1, 2])
def test_the_place_is_one_whenever_a_rank_is_told(
    position: int, more: int, place: int, told_at: int
) -> None:
    """Ranks that hear of it at different steps apply it behind the same one."""
    rank = Rank()
    rank.go_to(told_at)
    assert rank.rendezvous.agree(position, more)
    rank.go_to(len(ENDS) - 1)
    assert rank.applied_at == place


def test_a_rank_that_is_beyond_the_place_says_so() -> None:
    """It has come by it when it is told: it never applies it."""
    rank = Rank()
    rank.go_to(3)
    assert not rank.rendezvous.agree(8, 0)
    assert rank.rendezvous.agree(8, 1)
    rank.go_to(len(ENDS) - 1)
    assert rank.applied_at == 3


def test_the_place_may_be_set_anew_until_it_is_come_to() -> None:
    """Further on, where another rank had come by it; who has applied it says so."""
    rank = Rank()
    assert rank.rendezvous.agree(8, 0)
    rank.go_to(2)
    assert rank.rendezvous.agree(8, 3)
    rank.go_to(len(ENDS) - 1)
    assert rank.applied_at == 5
    assert not rank.rendezvous.agree(8, 20)


def test_a_rank_that_was_let_go_at_the_place_may_come_to_another_one() -> None:
    """What was to be done there has not been."""
    rank = Rank()
    assert rank.rendezvous.agree(8, 0)
    rank.go_to(3)
    assert rank.applied_at == 2
    assert not rank.rendezvous.agree(8, 2)
    assert not rank.rendezvous.agree(8, 0, is_undone=True)
    assert rank.rendezvous.agree(8, 2, is_undone=True)
    rank.go_to(len(ENDS) - 1)
    assert rank.applied_at == 4


def test_the_place_is_ahead_of_all() -> None:
    """Beyond the foremost, and as many steps later as half a second has of the fastest."""

    def prepared(position: int, step_s: float | None) -> Prepared:
        return Prepared(number=1, mark="collectives", position=position, step_s=step_s)

    assert meeting_place([prepared(7, 0.1), prepared(9, 0.2)]) == (10, 6)
    assert meeting_place([prepared(7, 30.0), prepared(7, None)]) == (8, 1)
    assert meeting_place([prepared(0, None)]) == (1, 2)


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ({0: ("collectives", 9, 0.1), 1: ("collectives", 900, 0.1)}, None),
        ({0: ("steps", 1000, 0.1), 1: ("steps", 990, 0.1)}, None),
        (
            {0: ("steps", 1000, 0.1), 1: ("steps", 400, 0.1)},
            "they do not meet within 30 s: rank 0 is in step 1000, rank 1 in step 400",
        ),
        (
            {0: ("collectives", 9, 0.1), 1: ("steps", 1, 0.1)},
            "collectives of the job's process group (rank 0), some not (rank 1)",
        ),
        ({0: ("recorded collectives", 9, 0.1), 1: ("recorded collectives", 2, 0.1)}, None),
        (
            {0: ("recorded collectives", 9, 0.1), 1: ("collectives", 9, 0.1)},
            "gloo counts collectives otherwise on each rank, and on rank 1 not all of them",
        ),
    ],
    ids=["collectives", "near", "apart", "mixed", "recorded", "late"],
)
def test_ranks_without_a_step_in_common_are_told_so(
    places: dict[int, tuple[str, int, float | None]], says: str | None
) -> None:
    """Without collectives of all ranks only their counts of steps are left; far apart is refused.

    It names who is where, and the way that there is.
    """
    ranks = {
        Member(rank=rank, host="h", pid=rank, world_size=2, endpoint=f"rank:{rank}"): Prepared(
            number=1, mark=mark, position=position, step_s=step_s
        )
        for rank, (mark, position, step_s) in places.items()
    }
    refused = no_place(ranks, 30.0)
    if says is None:
        assert refused is None
        return
    assert refused is not None
    assert says in refused.message
    assert "`probing -t rank:0 act ...` asks one by itself" in refused.help


def test_steps_that_begin_no_collectives_are_told_of() -> None:
    """A rank that waits for a count that stands still says how many steps have ended meanwhile."""
    rendezvous = Rendezvous(lambda: 5)
    kept = PendingAction(
        number=1, name="lr", arguments="", sender=Sender(), asked=Lr(), limit_s=3.0
    )
    assert str(too_late(kept, "collectives")).startswith(
        "the training did not reach the end of a step"
    )
    kept.rendezvous = rendezvous
    assert rendezvous.agree(6, 0)
    assert not any(rendezvous.is_here() for _ in range(7))
    words = "not among the 7 that ended within 3 s, so nothing was changed: ranks find it by the"
    assert words in str(too_late(kept, "collectives"))
    assert "of which these steps began none" in str(too_late(kept, "collectives"))
    assert "this one has not made as many as the foremost" in str(too_late(kept, "steps"))


@pytest.mark.parametrize(
    ("error", "turns"),
    [
        (decode_error(encode_error(ActRefused("it has come by"))), [3, 12, 48]),
        (ActRefused("it has come by"), [3, 12, 48]),
        (NotAnswering("it", 2), [3]),
    ],
    ids=["remote", "own", "lost"],
)
def test_only_where_a_rank_has_come_by_it_is_the_place_named_anew(
    error: ProbingError, turns: list[int]
) -> None:
    """An agent's refusal arrives as its code; an answer that is lost says nothing of the rank."""
    told: list[int] = []
    member = Member(rank=1, host="h", pid=1, world_size=2, endpoint="1")

    def tell(more: int) -> list[Outcome[Any]]:
        told.append(more)
        return [Outcome(member=member, value=None, error=error, seconds=0, state="failed")]

    more, failure = agree_on_place(tell, 3, ActRefused)
    assert told == turns
    assert more == turns[-1]
    assert failure is not None
    assert failure.code == error.code


def test_what_several_ranks_tell_is_said_once() -> None:
    """With all that tell it; whoever fails otherwise is named behind it."""
    refused, other = ActRefused("nothing has begun"), ActRefused("another reason")
    outcomes: list[Outcome[Any]] = [
        Outcome(
            member=Member(rank=rank, host="h", pid=rank, world_size=4, endpoint=str(rank)),
            value=None,
            error=error,
            seconds=0,
            state="failed",
        )
        for rank, error in enumerate((refused, other, refused, refused))
    ]
    failure = first_failure(outcomes)
    assert failure is not None
    assert failure.message == "ranks 0,2-3: nothing has begun; nor could rank 1."
    alone = first_failure(outcomes[:2])
    assert alone is not None
    assert alone.message == "rank 0: nothing has begun; nor could rank 1."
