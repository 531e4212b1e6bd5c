"""Gradients of parameters that another thread may train."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.agent.recording.training_thread import Trainers
from probing.agent.sources.shared.gradients import (
    Gradient,
    GradientLook,
    gradients_of,
    known_of,
)
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython


class _Tensor:
    """What a gradient is."""

    _version = 3


class _Parameter:
    """Has a gradient."""

    def __init__(self) -> None:
        self.grad: _Tensor | None = _Tensor()


class _Recording:
    """Has safe points, and says which threads train; whose the parameters are nothing tells."""

    def __init__(self, *others: int, is_agents: bool = False) -> None:
        number = threading.get_native_id()
        self.trainers = Trainers()
        self.trainers.threads.update({number, *others})
        self.safe_points = SafePoints()
        self.objects = SimpleNamespace(counted_optimizers=list)
        self.threads = SimpleNamespace(state=SimpleNamespace(native_id=number, is_agents=is_agents))


def _set(parameter: _Parameter) -> None:
    parameter.grad = None


def _delete(parameter: _Parameter) -> None:
    del parameter.grad


@contextmanager
def _letting_go(let_go: Callable[[_Parameter], None]) -> Iterator[threading.Thread]:
    """Another thread is in the midst of letting go of a gradient."""
    parameter, begun, goes_on = _Parameter(), threading.Event(), threading.Event()

    def told(_: object) -> None:
        begun.set()
        goes_on.wait(DEADLINE_S)

    reference = weakref.ref(parameter.grad or _Tensor(), told)
    thread = threading.Thread(target=let_go, args=(parameter,))
    thread.start()
    assert begun.wait(DEADLINE_S)
    try:
        yield thread
    finally:
        goes_on.set()
        thread.join(DEADLINE_S)
    assert reference() is None


def _is_known(recording: Any, patience_s: float = 0.0) -> bool:
    parameter = _Parameter()
    return gradients_of([parameter], recording, patience_s=patience_s) == [parameter.grad]


@pytest.mark.parametrize("let_go", [_set, _delete])
def test_none_is_read_while_another_thread_lets_go_of_one(
    let_go: Callable[[_Parameter], None],
) -> None:
    """The parameter points to it until it is freed, which is done without the interpreter lock."""
    with _letting_go(let_go) as thread:
        assert thread.native_id is not None
        assert not _is_known(_Recording(thread.native_id))
        assert not _is_known(_Recording(is_agents=True))
        assert _is_known(_Recording())  # which alone trains
    assert _is_known(_Recording(is_agents=True), DEADLINE_S)


class _AtWork:
    """Another thread is in a pass."""

    def is_here(self) -> bool:
        """See `AtWork`."""
        return False

    def is_elsewhere(self) -> bool:
        """See `AtWork`."""
        return True

    def is_transformed(self) -> bool:
        """See `AtWork`."""
        return False


def test_in_anothers_pass_they_are_read_only_where_all_is_proven_to_stand_still() -> None:
    """Autograd replaces gradients without the interpreter lock."""
    recording: Any = _Recording(is_agents=True)
    recording.safe_points.at_work = _AtWork()
    parameter = _Parameter()
    assert gradients_of([parameter], recording) is None
    assert gradients_of([parameter], recording, is_still=True) == [parameter.grad]


def test_a_look_waits_for_an_end_of_a_step_at_which_they_can_be_read() -> None:
    """As no other thread lets go of one."""
    parameter = _Parameter()
    with _letting_go(_set) as thread:
        recording: Any = _Recording(thread.native_id or 0)
        look = GradientLook(recording, [parameter])
        assert not look.step_ended()
        assert not look.is_over.is_set()
    assert look.step_ended()
    assert look.found == {id(parameter): Gradient(is_there=True, version=3)}
    assert look.is_over.is_set()


def test_what_another_thread_is_without_is_not_known_unless_it_is_the_own() -> None:
    """It may be between two passes; the thread at whose step's end they are read is not."""
    theirs, own = _Parameter(), _Parameter()
    theirs.grad = own.grad = None
    optimizer = SimpleNamespace(param_groups=[{"params": [own]}])
    nothing = Gradient(is_there=False, version=None)
    recording: Any = _Recording(threading.main_thread().native_id or 0)
    recording.objects.counted_optimizers = lambda: [optimizer]
    assert known_of([theirs, own], recording, patience_s=0) == dict.fromkeys(
        (id(theirs), id(own)), nothing
    )
    with _letting_go(_set) as thread:
        recording.trainers.threads.add(thread.native_id)
        assert known_of([theirs, own], recording, patience_s=0) is None
    beside: Any = _Recording(is_agents=True)
    beside.objects.counted_optimizers = lambda: [optimizer]
    assert known_of([theirs, own], beside, patience_s=DEADLINE_S) == {id(own): nothing}


def test_threads_that_train_are_told_from_those_that_have_ended() -> None:
    """Soon after the agent came late, others may train that were not seen to."""
    now, mine = [0.0], threading.get_native_id()
    trainers = Trainers(lambda: now[0])
    thread = threading.Thread(target=lambda: trainers.threads.add(threading.get_native_id()))
    thread.start()
    thread.join(DEADLINE_S)
    trainers.threads.add(mine)
    trainers.begin(late=True)
    assert not trainers.is_alone(mine)
    now[0] = 60.0
    # The kernel has it among its threads for a moment longer than Python.
    wait_until(lambda: trainers.is_alone(mine), "the end of the other")
    assert trainers.threads == {mine}
    assert not trainers.is_alone(mine + 1)
