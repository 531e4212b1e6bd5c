"""The micro-batches of a step: C and Python write the same rows, whatever happens in it."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from probing.agent.sources.numbers.number import Missed, Number
from probing.agent.sources.steps.phases import PHASES, Phases
from probing.agent.sources.steps.rows.late_rows import LateRows
from probing.agent.sources.steps.rows.losses import Total
from probing.agent.sources.steps.rows.step_batches import StepBatches, new_step_batches
from probing.agent.sources.steps.rows.step_places import StepEnd
from probing.ring import native
from probing.ring.format import NULL_FLOAT
from probing.ring.peek import RingPeek
from probing.ring.writer import RingWriter
from probing.tables import MICRO_BATCHES, STEPS

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


class Told:
    """One of both, with its ring and what it has told."""

    def __init__(self, folder: Path, *, in_c: bool) -> None:
        folder.mkdir()
        self.path = folder / "rows"
        self.ring = RingWriter(self.path, MICRO_BATCHES, 64)
        self.late = LateRows()
        self.steps = RingWriter(folder / "steps", STEPS, 64)
        self.batches = new_step_batches(self.ring, self.late, self.steps, in_c=in_c)
        self.told: list[Any] = []
        self.changes = 0

    def batch_changed(self) -> None:
        """See `MemoryMoments`."""
        self.changes += 1

    def entered(self, phase: int) -> None:
        """See `PhaseWatch`."""

    def left(self, phase: int) -> None:
        """See `PhaseWatch`."""

    def seen(self) -> tuple[Any, ...]:
        """All that is known from outside."""
        batches = self.batches
        losses = [
            (type(loss).__name__, _value(loss.number), _value(loss.share), *loss[2:4])
            for loss in batches.losses
        ]
        return (
            *(batches.count, batches.dropped, batches.tokens, batches.micro_batch),
            *(batches.has_passes, losses, self.told, self.changes, len(self.late.waiting)),
        )

    def end(self, now_ns: int) -> None:
        """The step ends."""
        self.batches.phases.end(now_ns)
        closing = self.steps.no_closing()
        ended = StepEnd(now_ns, 1, 2, 0.5, None, 3)
        loss = self.batches.fill_end(closing, ended, len(self.told) % 2)
        self.told.append((loss, closing))
        self.late.flush()

    def close(self) -> None:
        """It is over."""
        self.ring.close()
        self.steps.close()

    def rows(self) -> list[Any]:
        """The rows of the ring."""
        with RingPeek(self.path) as ring:
            return [ring.row(seq) for seq in range(1, ring.newest_seq() + 1)]


def _value(number: Any) -> Any:
    return None if number is None else number.read()


def _number(draw: random.Random) -> Any:
    """A loss: here, on its way, lost, or of several tensors."""
    value = float(draw.randrange(5))
    kinds = [
        lambda: Number(value),
        lambda: Number(NULL_FLOAT, Pending(value, draw.randrange(6))),
        Missed,
        lambda: Total(Number(value), Number(1.0)),
        lambda: None,
    ]
    return draw.choices(kinds, (6, 2, 1, 1, 1))[0]()


def _size(draw: random.Random) -> tuple[Any, Any, Any]:
    """What a call is given."""
    shape = tuple(draw.randrange(1, 5) for _ in range(draw.randrange(4)))
    if not shape:
        return draw.choice([(None, None, None), ((), None, None)])
    samples = shape[0] * draw.choice([1, 1, 1, 2])
    tokens = samples * shape[1] if len(shape) == 2 and draw.random() < 0.5 else None
    return shape, samples, tokens


def _count(draw: random.Random) -> int | None:
    return draw.choice([None, draw.randrange(9)])


def _tell_of_passes(batches: StepBatches, draw: random.Random, now: int) -> None:
    """Something about losses."""
    trains = draw.random() < 0.7
    match draw.randrange(9):
        case 0 | 1:
            batches.pass_begins(now, trains, draw.random() < 0.3)
        case 2 | 3:
            batches.lost(_number(draw), draw.choice([None, Number(0.5)]))
        case 4:
            batches.lost_in_function(draw.choice([None, Number(3.0)]))
        case 5 | 6:
            batches.reached(frozenset(draw.sample(range(3), draw.randrange(3))), trains)
        case 7:
            batches.pass_failed()
        case _:
            draw.choice([batches.drop_losses, batches.keep_losses, batches.replace_losses])()


def _tell_at_random(told: Told, draw: random.Random) -> None:
    """A step or two of nonsense."""
    batches, now = told.batches, 0
    batches.begin(1, 7)
    batches.phases.begin(0)
    for _ in range(draw.randrange(120)):
        now += draw.randrange(20)
        match draw.randrange(14):
            case 0 | 1:
                batches.phases.enter(draw.randrange(len(PHASES)), now)
            case 2 | 3:
                batches.phases.leave(now, trains=draw.random() < 0.7)
            case 4:
                has_batch = draw.random() < 0.7
                batches.phases.data_waited(now, 5, has_batch)
                if has_batch:
                    batches.came(_count(draw), _count(draw))
            case 5 | 6 | 7:
                batches.called(draw.choice([1 << 60, 2, 3]), _size(draw), draw.random() < 0.7)
            case 8:
                draw.choice([batches.call_failed, batches.evaluation_begins])()
            case 9:
                _change(told, draw, now)
            case _:
                _tell_of_passes(batches, draw, now)
    told.end(now)


def _change(told: Told, draw: random.Random, now: int) -> None:
    """A step ends, or is another thread's, or another training goes on."""
    batches = told.batches
    match draw.randrange(8):
        case 0 | 1:
            told.end(now)
            batches.begin(draw.randrange(9), 7)
            batches.phases.begin(now)
        case 2:
            batches.phases.end(now)
            batches.phases.resume(in_batch=batches.resume())
        case 3:
            losses, dropped = batches.exchange([], 0)
            told.told.append((len(losses), dropped))
            if draw.random() < 0.5:
                batches.exchange(losses, dropped)
        case 4:
            batches.begin(1, 8)
            batches.take_back()
            batches.phases.begin(now)
        case 5:
            watch: Any = told if draw.random() < 0.5 else None
            batches.memory = batches.phases.watch = watch
        case 6 if draw.random() < 0.2:
            batches.abandon()
        case _:
            batches.phases.end_batch()


def test_both_ways_write_the_same_rows(tmp_path: Path) -> None:
    """Whatever is told, in whatever order, rows, losses, sizes and numbers are the same."""
    for seed in range(150):
        seen = []
        for in_c in (True, False):
            told = Told(tmp_path / f"{seed}-{in_c}", in_c=in_c)
            assert isinstance(told.batches.phases, Phases) is not in_c
            _tell_at_random(told, random.Random(seed))
            seen.append((told.seen(), told.rows()))
            told.close()
        assert seen[0] == seen[1], seed


@pytest.mark.parametrize("in_c", [True, False], ids=["C", "Python"])
def test_more_calls_ahead_than_are_kept(tmp_path: Path, in_c: bool) -> None:
    """The oldest are forgotten: the pass behind the first one is of the second that is kept."""
    told = Told(tmp_path / "told", in_c=in_c)
    batches = told.batches
    batches.begin(1, 7)
    batches.phases.begin(0)
    for number in range(300):
        batches.called(5, ((number + 1,), number + 1, None), True)
    for _ in range(2):
        batches.pass_begins(1, True, False)
        batches.phases.enter(4, 1)
        batches.phases.leave(2)
        batches.reached(frozenset(), True)
    batches.phases.end(9)
    assert [row.values["samples"] for row in told.rows()] == [None, 46]
    told.close()


@pytest.mark.parametrize("in_c", [True, False], ids=["C", "Python"])
def test_what_cannot_be_written_is_told(tmp_path: Path, in_c: bool) -> None:
    """A number that no column holds raises as the row is written, and the next one is whole."""
    told = Told(tmp_path / "told", in_c=in_c)
    batches = told.batches
    batches.begin(1, 7)
    batches.phases.begin(0)
    for sizes in ((1 << 40, 1 << 40), (2, 3)):
        batches.phases.ensure_batch(1)
        with pytest.raises(OverflowError) if sizes[0] > 2 else contextlib.nullcontext():
            batches.called(5, (sizes, sizes[0], None), True)
            batches.phases.end_batch()
    assert told.rows()[-1].values["elements"] == 6
    told.close()


def test_nothing_is_left_of_steps(tmp_path: Path) -> None:
    """Of thousands of steps, no object for each."""
    told = Told(tmp_path / "told", in_c=True)
    batches = told.batches

    def step() -> None:
        batches.begin(12345, 7000)
        batches.phases.begin(10000)
        for _ in range(2):
            batches.called(1 << 60, ((2000, 3000), 2000, 6000000), True)
            batches.pass_begins(20000, True, False)
            batches.lost(Number(1.5), None)
            batches.lost_in_function(Number(2.5))
            batches.reached(frozenset({1000}), False)
            with pytest.raises(TypeError):
                batches.called(5, ((2,), "two", None), True)  # type: ignore[arg-type]
            batches.phases.end_batch()
            batches.exchange(*batches.exchange([], 0))
        told.end(99999)
        told.told.clear()

    for _ in range(100):
        step()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(2000):
        step()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000
    told.close()


def test_the_collector_frees_it(tmp_path: Path) -> None:
    """It and its clock know each other, and hold nothing of the training for that."""
    told = Told(tmp_path / "told", in_c=True)
    batches = told.batches
    batches.begin(1, 7)
    batches.phases.begin(0)
    batches.phases.ensure_batch(1)

    class Kept(Number):
        """A loss that can be waited for."""

    kept = Kept(1.0)
    gone = weakref.ref(kept)
    batches.lost(kept, None)
    batches.called(5, ((2,), 2, None), True)
    told.close()
    del told, batches, kept
    gc.collect()
    assert gone() is None


def test_calls_that_are_none_of_ours_are_refused(tmp_path: Path) -> None:
    """They raise, and change nothing."""
    told = Told(tmp_path / "told", in_c=True)
    made: Any = told.batches
    made.begin(1, 7)
    made.phases.begin(0)
    made.phases.ensure_batch(1)
    for call in (
        lambda: made.called(5, (), True),
        lambda: made.called(5, ((2,), "two", None), True),
        lambda: made.lost(1),
        lambda: made.began("now"),
        lambda: made.exchange((), 0),
        lambda: made.begin(1),
    ):
        with pytest.raises(TypeError):
            call()
    assert made.micro_batch == 0
    told.close()
