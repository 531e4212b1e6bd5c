"""Which nodes of autograd's graph may be hooked beside a pass, by real nodes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from probing.agent.sources.calls.backward.graph_nodes import sequence_nr
from probing.agent.sources.calls.backward.new_nodes import Ends, NewNodes
from probing.ring.native import new_moment
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.torch

NONE = Ends([], [], None)


class Beside:
    """A thread, and what it knows of the passes of others."""

    def __init__(self) -> None:
        self.recording = cast("Any", SimpleNamespace(now=new_moment(), passing=set()))
        self.nodes = NewNodes(self.recording)
        self.thread: Any = SimpleNamespace(
            recomputing=False, seen_passes=0, first_new=0, task=-1, native_id=1
        )

    def begin(self, native_id: int) -> None:
        """A pass begins in a thread."""
        self.recording.passing.add(native_id)
        self.recording.now.passes += 1

    def chosen(self, *outputs: Any, given: Any = None) -> Ends:
        """What may be hooked of a call that was given something and has returned something."""
        ends = Ends(list(outputs), [] if given is None else [given], given)
        return self.nodes.chosen(self.thread, ends, self.recording.now.passes)


@pytest.fixture
def beside() -> Beside:
    """A thread beside no pass."""
    return Beside()


def made() -> Any:
    """A node that is made here and now."""
    return torch.ones(1, requires_grad=True).sin().grad_fn


def test_without_a_pass_any_node_may_be_hooked(beside: Beside) -> None:
    """Also an old one, as that of a trunk which has been through a pass."""
    old = made()
    assert beside.chosen(old, given=old) == Ends([old], [old], old)
    beside.begin(2)
    beside.recording.passing.clear()
    assert beside.chosen(old, given=old) == Ends([old], [old], old)


def test_beside_a_pass_only_what_the_thread_has_made_since_may_be(beside: Beside) -> None:
    """And nothing that it was given, for it may be another thread's, of the same number."""
    old = made()
    beside.begin(2)
    assert beside.chosen(old, made()) == NONE  # it has not known when the pass began
    new, given = made(), made()
    assert beside.chosen(old, new, given, given=given)[::2] == ([new], None)
    beside.begin(3)
    beside.nodes.root_called(beside.thread, -1)
    newer = made()
    assert beside.chosen(new, newer).outputs == [newer]


def test_a_node_of_another_thread_is_not_new(beside: Beside) -> None:
    """Each numbers its nodes from 0 on: those of a thread that has begun just now are low."""
    foreign = made()
    assert sequence_nr(foreign) > 1
    found: list[Any] = []

    def call() -> None:
        beside.begin(2)
        beside.nodes.look(beside.thread)
        own = made()
        found.extend((own, beside.chosen(own, foreign).outputs))

    caller = threading.Thread(target=call)
    caller.start()
    caller.join(DEADLINE_S)
    assert found == [found[0], [found[0]]]


@pytest.mark.parametrize("is_known", [True, False])
def test_in_a_pass_what_it_comes_to_is_not_new(beside: Beside, *, is_known: bool) -> None:
    """Torch tells, whatever the numbers; of a pass that has not come our way its number does."""
    x = torch.ones(1, requires_grad=True).sin()
    found: list[Ends] = []
    made_in_it: list[Any] = []

    def then(_: object) -> None:
        beside.thread.recomputing = True
        if is_known:
            beside.begin(1)
        beside.nodes.root_called(beside.thread, torch._C._current_graph_task_id())
        with torch.enable_grad():
            made_in_it.extend((made(), made()))
        found.append(beside.chosen(made_in_it[0], x.grad_fn, given=made_in_it[1]))
        beside.thread.first_new = 0
        found.append(beside.chosen(made_in_it[0], x.grad_fn, given=x.grad_fn))

    y = x * 2
    y.register_hook(then)
    y.sum().backward()
    assert [ends.outputs for ends in found] == [made_in_it[:1]] * 2
    assert [ends.last for ends in found] == [made_in_it[1], None]


def test_hooks_are_not_handed_over_once_another_pass_has_begun(beside: Beside) -> None:
    """It may have begun since the nodes were chosen."""
    carrier = torch.empty(0, requires_grad=True)
    called: list[int] = []
    x = torch.ones(1, requires_grad=True).sin()
    hooks: Any = {0: called.append}
    assert beside.nodes.hand_over(carrier, hooks, [x.grad_fn], 0)
    beside.begin(2)
    assert not beside.nodes.hand_over(carrier, hooks, [x.grad_fn], 0)
    x.sum().backward()
    assert len(called) == 1
