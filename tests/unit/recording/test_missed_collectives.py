"""What becomes of collectives that have passed and were not recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.sources.collectives.source import CollectiveCalls

pytestmark = pytest.mark.anypython


class Kernels:
    """Those of a torch that can tell what is called from C++, or of one that cannot."""

    def __init__(self, *, can_be_on: bool) -> None:
        self.is_on, self._can_be_on = False, can_be_on

    def start(self) -> None:
        """Be on if that can be."""
        self.is_on = self._can_be_on


@pytest.mark.parametrize(("can_be_on", "anew", "misses"), [(True, 1, False), (False, 0, True)])
def test_groups_are_met_anew_once_what_was_missed_is_seen(
    can_be_on: bool,
    anew: int,
    misses: bool,
) -> None:
    """Not at each step where it will be missed for ever; `status` says so there."""
    met: list[None] = []
    calls: Any = CollectiveCalls.__new__(CollectiveCalls)
    unseen = [SimpleNamespace(has_unseen=lambda: not calls.kernels.is_on)]
    calls.rows = SimpleNamespace(poll=lambda _: None)
    calls.groups = SimpleNamespace(all=lambda: unseen, count_anew=lambda: met.append(None))
    calls.kernels, calls._misses = Kernels(can_be_on=can_be_on), False
    for _ in range(5):
        calls._look()
    assert len(met) == anew
    assert ("that are not seen" in calls.note()) is misses
