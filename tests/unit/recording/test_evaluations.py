"""Which calls and batches are an evaluation's, and which the next step's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.sources.steps.evaluations import Evaluations, Wait
from probing.ring.reader import read_ring
from probing.ring.writer import RingWriter
from probing.tables import EVALUATIONS

pytestmark = pytest.mark.anypython

OWN, FIRST, NEXT = Wait(1000, 500, 32, None), Wait(5000, 100, 8, None), Wait(6000, 100, 8, None)


class Root:
    """A model, in one of the two modes."""

    def __init__(self, *, training: bool) -> None:
        self.training = training


class Told:
    """What is told of a step that trains one model, until it goes on."""

    def __init__(self, ring: RingWriter, trained: Root) -> None:
        carried: Any = SimpleNamespace(called=lambda root: False)
        self.evaluations = Evaluations(ring, carried, lambda root: root is trained)

    def called(self, root: Any, samples: int, whole: Any = None) -> bool:
        """A root is called without gradients; returns whether that is evaluation.

        Args:
            whole: The model that it is a part of.
        """
        is_evaluation = self.evaluations.is_evaluation(root, samples)
        if is_evaluation:
            call: Any = SimpleNamespace(
                ids=(9, 9, 9), samples=samples, root=whole or root, called=root
            )
            self.evaluations.call_begins(7, 1, call, lambda: 10**9)
            self.evaluations.call_ended(2 * 10**9)
        return is_evaluation


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingWriter]:
    """That of the table."""
    made = RingWriter(tmp_path / "evaluations", EVALUATIONS, 64)
    yield made
    made.close()


def counted(tmp_path: Path) -> tuple[int, int]:
    """Calls and samples of the only evaluation."""
    rows = read_ring(tmp_path / "evaluations").rows
    ((calls, samples),) = zip(rows["calls"], rows["samples"], strict=True)
    return calls, samples


def test_a_teachers_call_and_its_batch_are_the_steps(ring: RingWriter, tmp_path: Path) -> None:
    """A validation behind them has only its own."""
    teacher, student = Root(training=False), Root(training=False)
    told = Told(ring, student)
    told.evaluations.data_waited(OWN)
    assert not told.called(teacher, 32)
    told.evaluations.data_waited(FIRST)
    assert told.called(student, 8)
    for _ in range(2):
        told.evaluations.data_waited(NEXT)
        assert told.called(student, 8)
    assert counted(tmp_path) == (3, 24)
    _, waits = told.evaluations.resumed()
    assert [wait.samples for wait in waits] == [OWN.samples]


def test_a_teachers_call_is_no_part_of_a_rollout(ring: RingWriter, tmp_path: Path) -> None:
    """A model in training mode that is called again and again begins it."""
    teacher, policy = Root(training=False), Root(training=True)
    told = Told(ring, policy)
    told.evaluations.data_waited(OWN)
    assert [told.called(one, 8) for one in (teacher, policy, policy)] == [False, False, True]
    assert counted(tmp_path) == (1, 8)


def test_the_first_call_of_models_in_turn_is_evaluation(ring: RingWriter, tmp_path: Path) -> None:
    """Which is known as the first of them is called again."""
    encoder, decoder = Root(training=True), Root(training=True)
    told = Told(ring, encoder)
    told.evaluations.data_waited(FIRST)
    assert [told.called(one, 8) for one in (encoder, decoder, encoder)] == [False, False, True]
    assert counted(tmp_path) == (3, 24)


def test_what_parts_of_a_model_are_given_in_turn_counts_once(
    ring: RingWriter, tmp_path: Path
) -> None:
    """As samples of the part that was called first."""
    whole, encoder, head = (Root(training=False) for _ in range(3))
    evaluations = Told(ring, encoder)
    for _ in range(2):
        assert evaluations.called(encoder, 8, whole)
        assert evaluations.called(head, 8, whole)
    assert counted(tmp_path) == (4, 16)
