"""A thread that keeps the interpreter lock is told from one that gets no processor."""

from __future__ import annotations

import pytest

from probing.linux import process
from probing.linux.process import ThreadFacts
from probing.messages.common import Frame, ThreadStack
from probing.reach import ladder
from probing.stacks import py_spy

pytestmark = pytest.mark.anypython

PID, HOLDER = 7, 8
READY_S = 2.0


class Machine:
    """A clock, and a thread that holds the lock; it gets a part of a processor.

    Attributes:
        share: Which part of the time it runs.
        leaves_s: After how much processor time it goes on to another line; None for never.
        sleeps: Whether it wants no processor.
        knows_waits: Whether the kernel counts how long it has waited.
    """

    def __init__(self) -> None:
        self.now_s = 100.0
        self.share = 1.0
        self.leaves_s: float | None = None
        self.sleeps = False
        self.knows_waits = True

    def monotonic(self) -> float:
        """The time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.now_s += seconds

    def threads(self, pid: int) -> dict[int, ThreadFacts]:
        """What the kernel tells of the thread."""
        passed_s = self.now_s - 100.0
        ran_s = 0.0 if self.sleeps else self.share * passed_s
        waited_s = 0.0 if self.sleeps else passed_s - ran_s
        fact = ThreadFacts(
            thread_id=HOLDER,
            state="S" if self.sleeps else "R",
            cpu_s=round(ran_s, 2),
            ready_s=waited_s if self.knows_waits else None,
        )
        return {HOLDER: fact}

    def take(self, pid: int, how: object) -> list[ThreadStack]:
        """Its stack as it is seen from outside."""
        (fact,) = self.threads(pid).values()
        has_left = self.leaves_s is not None and fact.cpu_s > self.leaves_s
        frame = Frame(func="load", file="/job/train.py", lineno=2 if has_left else 1)
        return [
            ThreadStack(thread_id=HOLDER, name="t", is_main=True, holds_gil=True, frames=(frame,))
        ]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One on which the clock, the kernel and py-spy are those of the test."""
    made = Machine()
    monkeypatch.setattr(ladder, "time", made)
    monkeypatch.setattr(process, "threads", made.threads)
    monkeypatch.setattr(py_spy, "take", made.take)
    monkeypatch.setattr(ladder, "ready_s", lambda: READY_S)
    return made


def test_one_that_gets_hardly_a_processor_is_waited_for(machine: Machine) -> None:
    """It is at the same place in two looks, and goes on once its turn has come."""
    machine.share, machine.leaves_s = 0.05, 0.02
    assert not ladder._keeps_lock(PID)
    assert machine.now_s < 100.0 + READY_S


def test_one_that_gets_none_is_not_stuck(machine: Machine) -> None:
    """As far as can be seen: it is looked at for as long as a busy machine may take."""
    machine.share = 0.0
    assert not ladder._keeps_lock(PID)


@pytest.mark.parametrize("knows_waits", [True, False])
@pytest.mark.parametrize("sleeps", [True, False])
def test_one_that_could_go_on_keeps_it(machine: Machine, sleeps: bool, knows_waits: bool) -> None:
    """Whether it sleeps or computes, two looks are enough."""
    machine.sleeps, machine.knows_waits = sleeps, knows_waits
    assert ladder._keeps_lock(PID)
    assert machine.now_s == pytest.approx(100.0 + ladder._SECOND_LOOK_S)


def test_one_that_computes_on_a_busy_machine_keeps_it(machine: Machine) -> None:
    """It is seen once it has had its turns."""
    machine.share = 0.1
    assert ladder._keeps_lock(PID)
