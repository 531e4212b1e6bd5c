"""Whatever is done to a process in whatever order, what is answered of it is true."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import probing
from probing.client.base import Process
from probing.errors import NotProbed, ProcessEnded, RingError
from probing.ring.reader import read_ring
from tests.faults import Reached
from tests.harness.targets import Target, start_program, wait_until

pytestmark = pytest.mark.torch
_PLACES = strategies.floats(0, 1)
COUNT = "SELECT count(*) AS calls FROM python.torch_trace WHERE stage = 'forward'"


class Attended(RuleBasedStateMachine):
    """A process that calls a module, and everything that may happen to it.

    The model is one number: how many calls are on record.
    """

    steps = called = 0

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._cwd = Path(self._folder.name)
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        """Start the process, with the agent."""
        self._number += 1
        cwd = self._cwd / str(self._number)
        cwd.mkdir()
        os.mkfifo(cwd / "orders")
        home = self._cwd / "home"
        os.environ["PROBING_HOME"] = str(home)
        self.target: Target = start_program("obeying", "orders", home=home, cwd=cwd)
        self.target.wait_for_agent()
        self.target.wait_for_output("ready")
        self._orders = os.open(cwd / "orders", os.O_WRONLY)
        self._ordered = 0
        self.calls, self.is_attached, self.is_alive = 0, True, True
        self.write(calls=3)

    def _order(self, order: str, answer: str) -> None:
        """Have it do something, and wait until that is done."""
        os.write(self._orders, f"{order}\n".encode())
        self.target.wait_for_output(f"{self._ordered}: {answer}\n")
        self._ordered += 1

    @property
    def process(self) -> Process:
        """The process, as a client sees it."""
        return probing.connect(self.target.pid)

    @precondition(lambda self: self.is_alive)
    @rule(calls=strategies.integers(1, 300))
    def write(self, calls: int) -> None:
        """It calls the module."""
        self._order(f"calls {calls}", "called")
        if self.is_attached:
            self.calls += calls
            type(self).called += calls

    @precondition(lambda self: self.is_alive)
    @rule()
    def fork(self) -> None:
        """A child of it calls the module, and ends; that is not on its record."""
        self._order("fork", "0")

    @precondition(lambda self: self.is_alive and self.is_attached)
    @rule()
    def detach(self) -> None:
        """The agent is taken out; its record goes with it."""
        folder = self.target.folder.path
        self.process.detach()
        wait_until(lambda: not folder.exists(), "the agent to leave")
        self.calls, self.is_attached = 0, False

    @precondition(lambda self: self.is_alive and not self.is_attached)
    @rule()
    def attach(self) -> None:
        """The agent is put in again."""
        self.process.attach()
        self.is_attached = True

    @precondition(lambda self: self.is_alive and self.is_attached)
    @rule(number=strategies.integers(-9, 9))
    def evaluate(self, number: int) -> None:
        """An eval has the value that it should have, or the error."""
        result = self.process.eval(f"84 // {number}")
        if number:
            assert result.value == str(84 // number)
        else:
            assert result.error_type == "ZeroDivisionError"

    @precondition(lambda self: self.is_attached and self.calls > 0)
    @rule(
        flips=strategies.lists(strategies.tuples(_PLACES, strategies.integers(1, 255))),
        end=_PLACES,
    )
    def corrupt(self, flips: list[tuple[float, int]], end: float) -> None:
        """A copy of the record that is damaged is read as far as it goes, or refused."""
        damaged = bytearray(self.target.folder.ring("torch_trace").read_bytes())
        for place, flip in flips:
            damaged[int(place * (len(damaged) - 1))] ^= flip
        copy = self._cwd / "copy.ring"
        copy.write_bytes(damaged[: int(end * len(damaged))])
        try:
            snapshot = read_ring(copy)
        except RingError:
            return
        assert snapshot.written == len(snapshot.rows) + snapshot.overwritten + snapshot.torn

    @precondition(lambda self: self.is_alive and self.is_attached)
    @rule()
    def kill(self) -> None:
        """It is killed; its record stays."""
        self.target.kill()
        self.is_alive = False

    @precondition(lambda self: not self.is_alive)
    @rule()
    def begin_anew(self) -> None:
        """There is another process."""
        os.close(self._orders)
        self._begin()

    @invariant()
    def its_calls_are_on_record(self) -> None:
        """Every call is a row, also of one that was killed; that there is no agent is said."""
        type(self).steps += 1
        if self.is_attached:
            assert self.process.query(COUNT).to_pylist() == [{"calls": self.calls}]
            return
        with pytest.raises(NotProbed):
            self.process.query(COUNT)

    @invariant()
    def it_is_known_whether_it_runs(self) -> None:
        """One that is alive runs undisturbed; an eval in one that has ended is refused as such."""
        if self.is_alive:
            assert self.target.process.poll() is None, self.target.output
            return
        with pytest.raises(ProcessEnded):
            self.process.eval("1")

    def teardown(self) -> None:
        """End what runs."""
        os.close(self._orders)
        self.target.reap()
        self._folder.cleanup()


@pytest.mark.fault("S1")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "steps"), [(2, 18), pytest.param(40, 50, marks=pytest.mark.nightly)]
)
def test_whatever_happens_in_whatever_order(
    runs: int, steps: int, fault: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, values and states are those of the model after every step of every history."""
    monkeypatch.setenv("PROBING_HOME", "")
    Attended.steps = Attended.called = 0
    run_state_machine_as_test(
        Attended,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    fault.holds(
        f"{runs} histories", "model and answers agree after every step",
        f"they agree after {Attended.steps} steps and {Attended.called} calls",
        is_kept=Attended.steps > steps and Attended.called > 0,
    )  # fmt: skip
