"""Which steps of an optimizer are taken for a repetition of the last, by roots made by hand."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.sources.steps.ends.optimizer_notes import OptimizerNotes
from probing.agent.sources.steps.rows.optimizer_rows import OptimizerStep

pytestmark = pytest.mark.anypython

IDS = (1, 2, 3)
STEP = OptimizerStep(7, 4, 5, 1, 6, 0.1, frozenset({7}))


class Thing:
    """A model, or an optimizer with groups of parameters."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, object]] = [{"params": [], "lr": 0.1}]


class Step:
    """A training whose last step was made by one optimizer, of one model."""

    def __init__(self) -> None:
        self.optimizer: Any = Thing()
        self.model, self.rows = Thing(), list[OptimizerStep]()
        self.called = {id(self.model): (weakref.ref(self.model), IDS)}
        recording: Any = SimpleNamespace(
            training_thread=1,
            objects=SimpleNamespace(held_lr={}),
            rows=SimpleNamespace(stepped=lambda _, step: self.rows.append(step)),
        )
        members: Any = SimpleNamespace(called=self.called)
        main: Any = SimpleNamespace(now=lambda: self.model, trained=lambda _: STEP.models)
        self.recording, self.notes = recording, OptimizerNotes(recording, members, main)
        self.end(STEP)

    def end(self, step: OptimizerStep | None) -> None:
        """A step ends that has trained the model."""
        trained: Any = {id(self.model): (weakref.ref(self.model), IDS)}
        self.notes.remember(self.optimizer, step, trained)

    def is_again(self) -> bool:
        """Whether the optimizer's next step is taken for another one like it."""
        return self.notes.again(self.optimizer) is not None


def another_optimizer(step: Step) -> None:
    """Another one steps the same model."""
    step.optimizer = Thing()


def another_model(step: Step) -> None:
    """A second root is called in the step."""
    other = Thing()
    step.called[id(other)] = (weakref.ref(other), IDS)


def model_in_its_place(step: Step) -> None:
    """The root that was called has another one's identity, which is gone."""
    other = Thing()
    step.called[id(step.model)] = (weakref.ref(other), IDS)


def no_call(step: Step) -> None:
    """No root is called."""
    step.called.clear()


def more_parameters(step: Step) -> None:
    """The optimizer has got another group of parameters."""
    step.optimizer.param_groups.append({"params": []})


def another_thread(step: Step) -> None:
    """Another thread is the one that counts."""
    step.recording.training_thread = 2


def several(step: Step) -> None:
    """Others had a part in the last step."""
    step.end(None)


def test_a_step_like_the_last_is_known_by_it() -> None:
    """The row is as the last one was, but for the rate, which an action may have it step with."""
    step = Step()
    assert step.is_again()
    assert step.notes.note_again(step.optimizer, STEP) is STEP
    step.optimizer.param_groups[0]["lr"] = 0.2
    assert step.notes.note_again(step.optimizer, STEP) == STEP._replace(lr=0.2)
    step.recording.objects.held_lr[id(step.optimizer)] = 0.3
    assert step.notes.note_again(step.optimizer, STEP) == STEP._replace(lr=0.3)
    assert [row.lr for row in step.rows] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    "change",
    [
        another_optimizer,
        another_model,
        model_in_its_place,
        no_call,
        more_parameters,
        another_thread,
        several,
    ],
)
def test_a_step_that_may_be_another_one_is_looked_at(change: Callable[[Step], None]) -> None:
    """Whatever could change which models it trains, or whether it ends a step."""
    step = Step()
    change(step)
    assert not step.is_again()


def test_nothing_is_kept_alive() -> None:
    """Neither the optimizer nor what it has trained."""
    step = Step()
    references = [weakref.ref(step.optimizer), weakref.ref(step.model)]
    step.optimizer = step.model = Thing()
    assert [reference() for reference in references] == [None, None]
