"""The clock of a step's phases, told of made-up times."""

from __future__ import annotations

import random

import pytest

from probing.agent.sources.steps.phases import BACKWARD, FORWARD, LOSS, OPTIMIZER, PHASES, Phases
from probing.ring import native

pytestmark = pytest.mark.anypython


class Told:
    """A clock of phases, and what it has told of micro-batches."""

    def __init__(self, *, in_c: bool) -> None:
        self.batches: list[tuple[int, int, dict[str, int]]] = []
        self.watched: list[tuple[str, int]] = []
        self._before = [0] * len(PHASES)
        self._began = 0
        self.phases: Phases = (
            native.IN_C.Phases(self._begin, self._end, PHASES)
            if in_c
            else Phases(self._begin, self._end)
        )

    def _begin(self, now_ns: int) -> None:
        self._began, self._before = now_ns, self.phases.spent_ns.copy()

    def _end(self, now_ns: int) -> None:
        spent = [a - b for a, b in zip(self.phases.spent_ns, self._before, strict=True)]
        self.batches.append((self._began, now_ns, named(spent)))

    def entered(self, phase: int) -> None:
        """A phase that is not within another one begins."""
        self.watched.append(("entered", phase))

    def left(self, phase: int) -> None:
        """It has ended."""
        self.watched.append(("left", phase))

    def spans(self, *spans: tuple[int, int, int]) -> None:
        """Phases that are entered and left, with both times."""
        for phase, start, end in spans:
            self.phases.enter(phase, start)
            self.phases.leave(end)

    def end(self, now_ns: int) -> dict[str, int]:
        """The step ends: what it was spent on."""
        self.phases.end(now_ns)
        return named(self.phases.spent_ns)


def named(spent_ns: list[int]) -> dict[str, int]:
    """The phases that there were, by name."""
    return {name: ns for name, ns in zip(PHASES, spent_ns, strict=True) if ns}


@pytest.fixture(params=["C", "Python"])
def told(request: pytest.FixtureRequest) -> Told:
    """A clock whose step has begun at 100."""
    if request.param == "C" and native.IN_C is None:
        pytest.skip("the C part is not built for this Python")
    made = Told(in_c=request.param == "C")
    made.phases.begin(100)
    return made


def test_every_moment_of_a_plain_step_has_its_phase(told: Told) -> None:
    """Data, copy, forward, loss, backward, clipping, optimizer and the rest add up to the step."""
    told.phases.data_waited(110, 20)
    told.spans((FORWARD, 135, 200), (BACKWARD, 207, 400), (OPTIMIZER, 411, 500))
    spent = told.end(513)
    assert spent == {
        "data_wait": 20,
        "to_device": 5,
        "forward": 65,
        "loss": 7,
        "backward": 193,
        "gradients": 11,
        "optimizer": 89,
        "other": 10 + 13,
    }
    assert sum(spent.values()) == 513 - 100


def test_micro_batches_end_with_their_backward_pass(told: Told) -> None:
    """Two of them in a step: each knows its own phases, the step knows all."""
    told.spans((FORWARD, 110, 120), (BACKWARD, 121, 141), (FORWARD, 150, 153), (BACKWARD, 155, 160))
    told.spans((OPTIMIZER, 161, 170))
    spent = told.end(170)
    assert told.batches == [
        (110, 141, {"forward": 10, "loss": 1, "backward": 20}),
        (150, 160, {"forward": 3, "loss": 2, "backward": 5}),
    ]
    assert spent["other"] == 10 + 9
    assert sum(spent.values()) == 70


def test_two_backward_passes_of_one_forward_are_one_micro_batch(told: Told) -> None:
    """Several losses, each with its own backward pass, belong to the same micro-batch."""
    told.spans((FORWARD, 100, 110), (BACKWARD, 111, 120), (BACKWARD, 122, 130))
    assert told.end(130)["backward"] == 17
    assert [(start, end) for start, end, _ in told.batches] == [(100, 130)]


def test_a_loader_at_its_end_begins_no_micro_batch(told: Told) -> None:
    """What follows a backward pass and an exhausted loader is done to the gradients."""
    told.spans((FORWARD, 100, 110), (BACKWARD, 112, 120))
    told.phases.data_waited(121, 5, False)
    told.spans((OPTIMIZER, 130, 140))
    spent = told.end(140)
    assert (spent["data_wait"], spent["gradients"], spent["other"]) == (5, 4, 1)
    assert [(start, end) for start, end, _ in told.batches] == [(100, 120)]


def test_a_forward_within_the_optimizer_is_not_counted_twice(told: Told) -> None:
    """LBFGS calls the model from inside its step, and what lies before the passes is the loss."""
    told.spans((FORWARD, 100, 104), (BACKWARD, 105, 106))
    told.phases.enter(OPTIMIZER, 106)
    told.spans((FORWARD, 110, 130), (BACKWARD, 133, 150))
    told.spans((FORWARD, 152, 155))
    assert told.phases.now() == LOSS
    told.phases.enter(BACKWARD, 157)
    told.phases.leave(159)
    assert told.phases.now() == OPTIMIZER
    told.phases.leave(160)
    spent = {"optimizer": 4 + 2 + 1, "forward": 27, "backward": 20, "loss": 6}
    assert told.end(160) == spent
    assert told.batches[1:] == [
        (110, 150, {"forward": 20, "loss": 3, "backward": 17}),
        (152, 159, {"forward": 3, "loss": 2, "backward": 2}),
    ]


def test_what_follows_a_model_without_backward_is_no_loss(told: Told) -> None:
    """After an evaluation comes the next batch: what is between them belongs to no phase."""
    told.phases.data_waited(100, 10)
    told.spans((FORWARD, 110, 120))
    told.phases.data_waited(150, 10)
    told.spans((FORWARD, 160, 170))
    assert told.end(170) == {"data_wait": 20, "forward": 20, "other": 30}


def test_leaving_what_was_never_entered_changes_nothing(told: Told) -> None:
    """Recording may begin in the middle of a phase."""
    told.phases.leave(150)
    assert told.end(160) == {"other": 60}


@pytest.mark.parametrize("in_c", [True, False])
def test_nothing_is_counted_between_steps(*, in_c: bool) -> None:
    """Before a step begins and after it has ended, phases pass unnoticed."""
    told = Told(in_c=in_c)
    told.spans((FORWARD, 10, 20))
    told.phases.begin(100)
    told.phases.end(110)
    told.spans((FORWARD, 110, 120))
    told.phases.data_waited(120, 5)
    assert named(told.phases.spent_ns) == {"other": 10}


def test_a_wait_that_began_before_the_step_counts_from_its_beginning(told: Told) -> None:
    """No nanosecond belongs to two steps."""
    told.phases.data_waited(90, 30)
    assert told.end(120) == {"data_wait": 20}


def test_the_clock_in_c_tells_what_that_in_python_does() -> None:
    """Whatever is told, in whatever order, both have the same times, batches and watched phases."""
    if native.IN_C is None:
        pytest.skip("the C part is not built for this Python")
    for seed in range(300):
        one, other = Told(in_c=True), Told(in_c=False)
        assert type(one.phases) is not Phases
        for each in (one, other):
            _tell_at_random(each, random.Random(seed))
        assert one.batches == other.batches
        assert one.watched == other.watched
        assert one.phases.spent_ns == other.phases.spent_ns
        assert one.phases.now() == other.phases.now()


def _tell_at_random(told: Told, draw: random.Random) -> None:
    """A step or two of nonsense."""
    phases, now = told.phases, 0
    for _ in range(draw.randrange(60)):
        now += draw.randrange(50)
        match draw.randrange(10):
            case 0 | 1 | 2:
                phases.enter(draw.randrange(len(PHASES)), now)
            case 3 | 4 | 5:
                phases.leave(now, trains=draw.random() < 0.7)
            case 6:
                phases.data_waited(now, draw.randrange(20), draw.random() < 0.7)
                now += 20
            case 7:
                phases.synchronized(now - draw.randrange(30), now)
            case 8:
                draw.choice([phases.ensure_batch, phases.begin])(now)
            case _:
                told.phases.watch = told if draw.random() < 0.5 else None
                if draw.random() < 0.2:
                    phases.end(now)
                elif draw.random() < 0.2:
                    phases.resume(in_batch=draw.random() < 0.5)
                phases.end_batch()
