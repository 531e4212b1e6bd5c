"""The rows of optimizers' steps: C and Python write the same, whatever the losses are."""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from probing.agent.sources.numbers.number import Missed, Number
from probing.agent.sources.steps.rows.late_rows import LateRows
from probing.agent.sources.steps.rows.losses import Loss, Total
from probing.agent.sources.steps.rows.optimizer_rows import (
    OptimizerRows,
    OptimizerStep,
    new_optimizer_rows,
)
from probing.ring import native
from probing.ring.format import NULL_FLOAT
from probing.ring.peek import RingPeek
from probing.ring.writer import RingWriter
from probing.tables import OPTIMIZER_STEPS

pytestmark = [
    pytest.mark.anypython,
    pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python"),
]


class Pending:
    """A number that has come once it was asked for some times."""

    def __init__(self, value: float, times: int) -> None:
        self._value, self._times = value, times

    def is_here(self) -> bool:
        """Whether it has come."""
        self._times -= 1
        return self._times < 0

    def value(self) -> float:
        """The number."""
        return self._value


def _number(draw: random.Random) -> Any:
    """A number: here, on its way, lost, or of several tensors."""
    value = float(draw.randrange(5))
    kinds = [
        lambda: Number(value),
        lambda: Number(NULL_FLOAT, Pending(value, draw.randrange(6))),
        Missed,
        lambda: Total(Number(value), Number(1.0)),
    ]
    return draw.choices(kinds, (6, 2, 1, 1))[0]()


def _loss(draw: random.Random) -> Loss:
    """What a pass may have begun with."""
    share = draw.choice([None, None, Number(0.5), Number(0.25)])
    reached = draw.choice([frozenset(), frozenset(draw.sample(range(3), 1))])
    return Loss(_number(draw), share, reached, draw.random() < 0.8)


def _step_at_random(rows: OptimizerRows, draw: random.Random) -> list[Any]:
    """Some steps of a training, with what is known after each."""
    told = []
    for step in range(draw.randrange(1, 6)):
        rows.forget()
        losses: list[Loss] = []
        norm: Any = None
        for number in range(draw.randrange(4)):
            losses += [_loss(draw) for _ in range(draw.choice([0, 1, 1, 2]))]
            norm = draw.choice([norm, None, _number(draw)])
            who = draw.randrange(3)
            made = OptimizerStep(who, 1, 2, 3, 4, draw.choice([0.1, NULL_FLOAT]), frozenset({who}))
            dropped = draw.choice([0, 0, 0, min(1, len(losses))])
            rows.write((number, step, 7), made, losses, norm, dropped)
            told.append((rows.count, rows.have_one_loss))
    return told


def test_both_ways_write_the_same_rows(tmp_path: Path) -> None:
    """Whichever optimizers step, whatever of the losses is there, and how they are divided."""
    for seed in range(150):
        found = []
        for in_c in (True, False):
            path = tmp_path / f"{seed}-{in_c}"
            ring, late = RingWriter(path, OPTIMIZER_STEPS, 64), LateRows()
            rows = new_optimizer_rows(ring, late, in_c=in_c)
            assert isinstance(rows, OptimizerRows) is not in_c
            told = _step_at_random(rows, random.Random(seed))
            waiting = len(late.waiting)
            for _ in range(8):
                late.flush()
            with RingPeek(path) as peek:
                written = [peek.row(seq) for seq in range(1, peek.newest_seq() + 1)]
            found.append((told, waiting, written))
            ring.close()
        assert found[0] == found[1], seed


def test_nothing_is_left_of_steps(tmp_path: Path) -> None:
    """Of thousands of steps, no object for each."""
    ring, late = RingWriter(tmp_path / "rows", OPTIMIZER_STEPS, 64), LateRows()
    rows = new_optimizer_rows(ring, late)
    made = OptimizerStep(1000, 2000, 3000, 4000, 5000, 0.25, frozenset({1000}))

    def step() -> None:
        rows.forget()
        for share in (None, Number(0.5)):
            losses = [Loss(Number(1.5), share)] * 2
            rows.write((123456, 2345, 7890), made, losses[:1], Number(3.5), 0)
            rows.write((123456, 2345, 7890), made, losses, None, 1)

    for _ in range(100):
        step()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(2000):
        step()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000
    ring.close()


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    """It raises, and the next step is written whole."""
    ring = RingWriter(tmp_path / "rows", OPTIMIZER_STEPS, 64)
    rows: Any = new_optimizer_rows(ring, LateRows())
    much: Any = "much"
    good = OptimizerStep(1, 1, 2, 3, 4, 0.5, frozenset({1}))
    for bad in (good._replace(lr=much), good._replace(name=-1)):
        with pytest.raises((TypeError, OverflowError)):
            rows.write((0, 1, 7), bad, [Loss(Number(1.0), None)], None, 0)
    refused: list[tuple[Any, ...]] = [
        ((), ()),
        ((0, 1, 7), good, (), None, 0),
        ((0, 1, 7), (1,), [], None, 0),
    ]
    for arguments in refused:
        with pytest.raises(TypeError):
            rows.write(*arguments)
    rows.forget()
    rows.write((0, 1, 7), good, [Loss(Number(1.0), None)], Number(2.0), 0)
    with RingPeek(tmp_path / "rows") as peek:
        row = peek.row(peek.newest_seq())
    assert row is not None
    assert (row.values["loss"], row.values["grad_norm"], row.values["lr"]) == (1.0, 2.0, 0.5)
    ring.close()
