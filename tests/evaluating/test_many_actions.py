"""What is left of many actions: neither work at each step nor memory grows with their number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing.agent.actions.pending import PendingAction, still_kept  # noqa: E402
from probing.agent.actions.record import Outcome  # noqa: E402
from probing.agent.audit.request_log import Sender  # noqa: E402
from probing.agent.sources.actions.ledger import Undone  # noqa: E402
from probing.agent.sources.actions.rate_watch import successors_of  # noqa: E402
from probing.agent.sources.shared.events import Events  # noqa: E402
from probing.agent.sources.shared.objects import Objects  # noqa: E402
from probing.messages.about.act import Lr  # noqa: E402

pytestmark = pytest.mark.torch

MOST = 5


def _optimizer() -> Any:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def test_actions_on_one_optimizer_share_a_look() -> None:
    """One after another optimizer was made has its own: to it, that one is not new.

    Each look ends with the last action that needs it.
    """
    recording: Any = SimpleNamespace(objects=Objects(), events=Events())
    first, later = _optimizer(), _optimizer()
    early = [successors_of(recording, [first]) for _ in range(100)]
    assert len(recording.events.before_step) == 1
    recording.objects.made.add(later)
    late = successors_of(recording, [first])
    assert len(recording.events.before_step) == 2
    for _ in range(3):
        for look in recording.events.before_step:
            look(later, (), {})
    assert all(one.have_replaced(first) for one in early)
    assert not late.have_replaced(first)
    del early
    for look in recording.events.before_step:
        look(later, (), {})
    assert len(recording.events.before_step) == 1


def _action(number: int, *, hangs: bool = False, is_over: bool = True) -> PendingAction:
    """One that can be undone, once it is over."""
    kept = PendingAction(number=number, name="lr", arguments="", sender=Sender(), asked=Lr(),
                         limit_s=1.0)  # fmt: skip
    kept.hooks = SimpleNamespace(hangs=hangs)
    if is_over:
        kept.outcome, kept.undo = Outcome("done"), Undone
    return kept


def test_what_can_be_undone_is_bounded() -> None:
    """The last are kept, undone ones beside them, and whatever is in hand or in force."""
    actions = [_action(1, hangs=True), _action(2, is_over=False), *map(_action, range(3, 13))]
    actions[4].replaced, actions[3].replaced_by = [actions[3]], [actions[4]]
    for kept in actions[-2:]:
        kept.undo = None
    assert [kept.number for kept in still_kept(actions, MOST)] == [1, 2, 6, 7, 8, 9, 10, 11, 12]
    assert actions[4].replaced == []


def test_what_stands_below_a_forgotten_action_can_be_undone() -> None:
    """As a clip in force on one optimizer, which another action ended on the other long ago."""
    actions = [_action(1, hangs=True), *map(_action, range(2, 10))]
    below, *_, last = actions
    for above in (actions[1], last):
        above.replaced.append(below)
        below.replaced_by.append(above)
    kept = still_kept(actions, MOST)
    assert actions[1] not in kept
    assert below.replaced_by == [last]
    below.replaced_by.remove(last)
    assert below.can_be_undone
