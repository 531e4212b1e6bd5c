"""What looks at gradients as a pass begins, while another thread lets go of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.agent.sources.fit.stepped_in_pass import SteppedInPass
from probing.agent.sources.leaks.stale_gradients import StaleGradients
from probing.agent.sources.shared.events import Events
from probing.agent.sources.shared.thread_state import ThreadStates
from probing.agent.sources.steps.ends.dropped_passes import DroppedPasses
from probing.agent.sources.steps.ends.pass_looks import PassLooks, Reached

pytestmark = pytest.mark.anypython


class _Gradient:
    """Holds something."""

    _version = 1

    def numel(self) -> int:
        """As of torch."""
        return 1

    def detach(self) -> _Gradient:
        """As of torch."""
        return self

    def any(self) -> bool:
        """As of torch."""
        return True


class _Parameter:
    """Counts how often its gradient is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.gradient: Any = _Gradient()

    @property
    def grad(self) -> _Gradient:
        """As of torch."""
        self.reads += 1
        return self.gradient


class _Optimizer:
    """Has one parameter."""

    def __init__(self) -> None:
        self.parameter = _Parameter()
        self.param_groups = [{"params": [self.parameter]}]


class _Training:
    """A training of two optimizers, beside which another thread may let go of gradients."""

    def __init__(self, *, is_alone: bool) -> None:
        self.optimizers: list[Any] = [_Optimizer(), _Optimizer()]
        self.counted = self.optimizers
        points = SafePoints()
        at_work: Any = SimpleNamespace(is_here=lambda: False, is_elsewhere=lambda: not is_alone)
        points.at_work = at_work
        self.recording: Any = SimpleNamespace(
            threads=ThreadStates(),
            trainers=SimpleNamespace(is_alone=lambda _: is_alone),
            safe_points=points,
            events=Events(),
            rows=SimpleNamespace(drop_losses=lambda: None),
            objects=SimpleNamespace(
                made=None, optimizer=lambda: self.optimizers[0], counted_optimizers=self._counted
            ),
        )

    def _counted(self, _: object = None) -> list[Any]:
        return self.counted

    @property
    def reads(self) -> int:
        """How often gradients were read."""
        return sum(one.parameter.reads for one in self.optimizers)

    def passes(self) -> None:
        """Make other gradients."""
        for one in self.optimizers:
            one.parameter.gradient = _Gradient()


def _reached(training: _Training) -> object:
    members: Any = SimpleNamespace(number_of=training.optimizers.index)
    reached = Reached(training.recording, members)
    reached.pass_begins()
    training.passes()
    return reached.pass_ended() == {0, 1}


def _dropped(training: _Training) -> object:
    dropped = DroppedPasses(training.recording)
    dropped.pass_begins()
    training.passes()
    return dropped.pass_ended([])


def _stale(training: _Training) -> object:
    training.counted = training.optimizers[:1]
    stale = StaleGradients(training.recording)
    stale.start()
    training.recording.events.before_backward[0](())
    return stale.take()


def _stepped(training: _Training) -> object:
    seen = SteppedInPass()
    seen.pass_begins()
    seen.steps(training.optimizers[0])
    seen.pass_ended(training.recording)
    return not seen.lets_go


@pytest.mark.parametrize("look", [_reached, _dropped, _stale, _stepped])
def test_a_look_reads_none_of_them_unless_they_can_be_read(look: Any) -> None:
    """It tells nothing then, rather than to end the process."""
    alone, beside = _Training(is_alone=True), _Training(is_alone=False)
    assert look(alone)
    assert alone.reads
    look(beside)
    assert not beside.reads


class _Looks:
    """Looks at the passes of a training.

    Attributes:
        reads: How often gradients were read in each step.
        drops: In which steps the gradients of passes turned out to be thrown away.
    """

    def __init__(self) -> None:
        self.training = _Training(is_alone=True)
        self.reads, self.drops = list[int](), list[int]()
        self.training.recording.rows = SimpleNamespace(
            drop_losses=lambda: self.drops.append(len(self.reads)),
            keep_losses=lambda: None,
            reached=lambda *_: None,
        )
        members: Any = SimpleNamespace(number_of=self.training.optimizers.index)
        self._looks = PassLooks(self.training.recording, members)

    def step(self, *, passes: int = 1, keeps: bool = True) -> None:
        """Make passes, whose gradients are thrown away between two of them unless all are kept."""
        before = self.training.reads
        for number in range(passes):
            if number and not keeps:
                for one in self.training.optimizers:
                    one.parameter.gradient = None
            self._looks.pass_begins(is_new=False)
            self.training.passes()
            self._looks.pass_ended([], trains=True)
        self._looks.optimizer_stepped()
        self.reads.append(self.training.reads - before)


@pytest.mark.parametrize("keeps", [True, False])
def test_passes_are_looked_at_where_there_is_anything_to_tell(keeps: bool) -> None:
    """None of a training of one pass in each step; of one that turns out to make two, all are."""
    looks = _Looks()
    for _ in range(12):
        looks.step()
    assert all(looks.reads[:8])
    assert not any(looks.reads[8:])
    looks.step(passes=2, keeps=keeps)
    assert looks.drops == ([] if keeps else [12])
    looks.step()
    assert all(looks.reads[12:])
