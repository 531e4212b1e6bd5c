"""Actions that are taken back, one behind the other."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.actions.actions import Actions
from probing.agent.actions.pending import PendingAction
from probing.agent.actions.record import Outcome
from probing.agent.audit.request_log import Sender
from probing.errors import RingError
from probing.messages.about.act import ActRequest, Change, Lr, Undo
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython

ANOTHER_S = 0.2
"""Time enough for another action to take its turn, were that free."""


class Undoing(Actions):
    """Actions of no training, in which a second undo comes as the first is being written down."""

    def __init__(self) -> None:
        def make_ring(*_: object) -> Any:
            raise RingError("actions", "no record")

        recorder: Any = SimpleNamespace(problems=[], names=dict, make_ring=make_ring)
        super().__init__(recorder)
        self.undone: list[int] = []
        self.second: PendingAction | None = None
        self.has_begun = threading.Event()

    def _carry_out(self, kept: PendingAction, until: float) -> Outcome:
        if isinstance(kept.asked, Undo):
            kept.taken_back = self._undoable(None)
            self.undone.append(kept.taken_back.number)
        else:
            kept.undo = lambda: pytest.fail("nothing is undone here")
        if kept is self.second:
            self.has_begun.set()
        return Outcome("done", changes=(Change(what="lr", before="1", after="2"),))

    def _settle(self, kept: PendingAction, outcome: Outcome) -> None:
        if isinstance(kept.asked, Undo) and self.second is None:
            self.second = self.submit(ActRequest(undo=Undo()), Sender())
            self.has_begun.wait(ANOTHER_S)
        super()._settle(kept, outcome)


def test_each_undo_takes_back_another_action() -> None:
    """The second finds the first written down: it does not take the same action back again."""
    actions = Undoing()
    for _ in range(2):
        actions.submit(ActRequest(lr=Lr(scale=0.5)), Sender()).future.result(DEADLINE_S)
    actions.submit(ActRequest(undo=Undo()), Sender()).future.result(DEADLINE_S)
    assert actions.second is not None
    actions.second.future.result(DEADLINE_S)
    assert actions.undone == [2, 1]
    assert [act.state for act in actions.told().acts] == ["undone", "undone", "done", "done"]
