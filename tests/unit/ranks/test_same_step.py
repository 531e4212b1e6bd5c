"""After which step the parameters of all ranks are looked at, where one hears of it late."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import pytest

from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import Outcome
from probing.cluster.ranks.gather_facts import gather_facts
from probing.cluster.ranks.question import Asking
from probing.errors import NotAnswering
from probing.messages.common import LiveRows
from probing.tables import ENVIRONMENT, PARAMETER_CHECKSUMS

STEP_S, NOW = 0.1, 50


class _Rows:
    def to_pylist(self) -> list[dict[str, Any]]:
        return [{"step": NOW, "duration": STEP_S}]


class _Rank:
    """A training at step `NOW` that hears of a step some seconds after it was asked."""

    def __init__(self, late_s: float) -> None:
        self._late_s = late_s
        self.looked: list[int] = []

    def query(self, _: str) -> _Rows:
        return _Rows()

    def settings(self) -> None:
        raise NotAnswering("rank", 1)

    def live(self, name: str, wait_s: float | None = None) -> LiveRows:
        if name == ENVIRONMENT.name:
            return LiveRows.of(ENVIRONMENT, ())
        assert wait_s is not None
        step = max(int(name.partition("@")[2]), NOW + round(self._late_s / STEP_S))
        self.looked.append(step)
        row = {"step": step, "parameter": "weight", "checksum": "crc32:00000000", "is_shard": False}
        return LiveRows.of_dicts(PARAMETER_CHECKSUMS, [row])


@dataclasses.dataclass(frozen=True)
class _Asking:
    """Asks in turn what a real one asks at once."""

    ranks: tuple[_Rank, ...]
    timeout_s: float = 60.0

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(
            Member(rank=rank, host="n1", pid=rank, world_size=2, endpoint="")
            for rank in range(len(self.ranks))
        )

    @property
    def names(self) -> dict[Member, int]:
        return {member: rank for rank, member in enumerate(self.members)}

    def ask(self, question: Callable[[Any, Member], Any], *, is_together: bool) -> tuple[Any, ...]:
        assert is_together
        return tuple(
            Outcome(member=member, value=question(rank, member), error=None, seconds=0.0,
                    state="answered")
            for rank, member in zip(self.ranks, self.members, strict=True)
        )  # fmt: skip


@pytest.mark.parametrize(
    ("late_s", "timeout_s", "looks", "are_alike"),
    [
        (0.5, 60.0, 1, True),
        (3.0, 60.0, 2, True),
        (10.0, 60.0, 3, True),
        (20.0, 60.0, 3, False),  # as often as that, and then it is told as it is
        (3.0, 5.0, 3, False),  # nobody waits longer than half of the time
    ],
)
def test_all_ranks_look_after_the_same_step(
    late_s: float, timeout_s: float, looks: int, *, are_alike: bool
) -> None:
    """Where one heard of it too late they do so again, further ahead."""
    ranks = (_Rank(0.0), _Rank(late_s))
    told, outcomes = gather_facts(cast("Asking", _Asking(ranks, timeout_s)))
    assert [outcome.state for outcome in outcomes] == ["answered"] * 2
    assert [len(rank.looked) for rank in ranks] == [looks, looks]
    assert (told[0].facts.step == told[1].facts.step) == are_alike
    assert [one.facts.step for one in told] == [rank.looked[-1] for rank in ranks]
