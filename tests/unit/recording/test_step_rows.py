"""Numbers of a step that come from a device later than the step ends, told by a made-up device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.agent.sources.accelerator import DeviceModel, PendingNumber, PendingNumbers
from probing.agent.sources.model.model_flops import Precision, peak_of
from probing.agent.sources.numbers.number import Missed, Number
from probing.agent.sources.steps.evaluations import Wait
from probing.agent.sources.steps.phases import BACKWARD, FORWARD
from probing.agent.sources.steps.rows.micro_batch_rows import CallsAhead
from probing.agent.sources.steps.rows.step_places import StepEnd
from probing.agent.sources.steps.rows.step_rows import StepRows
from probing.ring.format import NULL_FLOAT
from probing.ring.peek import RingPeek
from probing.ring.reader import read_ring
from probing.ring.writer import RingWriter
from probing.tables import MICRO_BATCHES, OPTIMIZER_STEPS, STEPS
from tests.harness.accelerators import NoAccelerator

pytestmark = pytest.mark.anypython


Rings = tuple[RingWriter, RingWriter, RingWriter]


class Pending:
    """A number that comes when it is told to."""

    def __init__(self, value: float) -> None:
        self._value = value
        self.has_come = False

    def is_here(self) -> bool:
        """Whether it has come."""
        return self.has_come

    def value(self) -> float:
        """The number."""
        assert self.has_come
        return self._value


class JustComing(Pending):
    """A number that comes in the moment after it was first asked for."""

    def is_here(self) -> bool:
        """Whether it had come before."""
        had_come, self.has_come = self.has_come, True
        return had_come


class Asked(Pending):
    """A number that counts how often it was asked for."""

    def __init__(self, value: float) -> None:
        super().__init__(value)
        self.times = 0

    def is_here(self) -> bool:
        """Whether it has come."""
        self.times += 1
        return self.has_come


class Moment(float):
    """A mark: so many seconds; the second one is reached before the host has come to its next."""

    def is_here(self) -> bool:
        """Whether the device has come to it."""
        return self == 3.5


class Device(NoAccelerator):
    """An accelerator whose marks are numbers of seconds, which are known when it is told to."""

    def __init__(self) -> None:
        self._moments: Iterator[float] = iter([1.0, 3.5, 4.0, 8.0])
        self.pending: list[Pending] = []

    def allocated_bytes(self) -> int | None:
        """Nothing."""
        return None

    def copy_number(self, tensor: Any) -> PendingNumber | None:
        """Numbers are made by the test."""
        raise AssertionError(tensor)

    def copy_numbers(self, tensor: Any) -> PendingNumbers | None:
        """Nor are several read."""
        raise AssertionError(tensor)

    def mark(self, device: Any = None) -> Moment:
        """The next moment."""
        return Moment(next(self._moments))

    def between(self, first: Any, last: Any) -> PendingNumber:
        """What lies between two moments."""
        self.pending.append(Pending(last - first))
        return self.pending[-1]

    def device_model(self) -> DeviceModel:
        """One that is known."""
        return DeviceModel("NVIDIA H100 80GB HBM3", 132)


@pytest.fixture
def rings(tmp_path: Path) -> Iterator[Rings]:
    """The rings of the tables."""
    tables = (STEPS, MICRO_BATCHES, OPTIMIZER_STEPS)
    made = tuple(RingWriter(tmp_path / t.name, t, 64) for t in tables)
    yield made[0], made[1], made[2]
    for ring in made:
        ring.close()


def run_step(rows: StepRows, losses: list[tuple[Number, Number | None]], start_ns: int) -> None:
    """A step of one micro-batch for each loss, with the share that it is."""
    rows.open(start_ns, 0, 1)
    now = start_ns
    for loss, share in losses:
        rows.phases.enter(FORWARD, now)
        rows.phases.leave(now + 10)
        rows.lost(loss, share)
        rows.phases.enter(BACKWARD, now + 10)
        now += 30
        rows.phases.leave(now)
    rows.close(now, StepEnd(now - start_ns, 0, 0, 0.5, None))


def steps(tmp_path: Path) -> list[dict[str, Any]]:
    """The rows of python.steps."""
    return rows_of(tmp_path, "steps")


def rows_of(tmp_path: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    with RingPeek(tmp_path / table) as ring:
        found = [ring.row(seq) for seq in range(1, ring.newest_seq() + 1)]
    return [dict(row.values) for row in found if row is not None]


def test_what_comes_late_is_written_late(rings: Rings, tmp_path: Path) -> None:
    """A row is complete at once, and gets its loss and its device time when they are there."""
    device = Device()
    rows = StepRows(*rings, device)
    loss = Pending(2.0)
    run_step(rows, [(Number(NULL_FLOAT, loss), None)], 100)
    first = steps(tmp_path)[0]
    assert first["duration_ns"] == 30
    assert (first["loss"], first["loss_finite"], first["device_s"]) == (None, None, None)
    loss.has_come = True
    run_step(rows, [(Number(1.0), None)], 200)
    assert steps(tmp_path)[0]["device_s"] is None, "it is still on its way"
    device.pending[0].has_come = True
    run_step(rows, [(Number(math.nan), None)], 300)
    first, _, third = steps(tmp_path)
    assert (first["loss"], first["loss_finite"], first["device_s"]) == (2.0, True, 2.5)
    assert math.isnan(third["loss"])
    assert not third["loss_finite"]
    assert [row["host_bound"] for row in steps(tmp_path)] == [False, True, False]


def test_a_loss_divided_for_accumulation_is_summed(rings: Rings, tmp_path: Path) -> None:
    """Where they are shares that add up to one: the sum; else the mean."""
    rows = StepRows(*rings, Device())
    run_step(rows, [(Number(1.0), Number(0.5)), (Number(2.0), Number(0.5))], 0)
    run_step(rows, [(Number(1.0), None), (Number(2.0), None)], 100)
    run_step(rows, [(Number(1.0), Number(0.3)), (Number(2.0), Number(0.3))], 200)
    found = [(row["loss"], row["first_loss"], row["last_loss"]) for row in steps(tmp_path)]
    assert found == [(3.0, 2.0, 4.0), (1.5, 1.0, 2.0), (1.5, 1.0, 2.0)], "shares are told whole"


def test_a_loss_that_was_not_brought_leaves_its_step_without_one(
    rings: Rings, tmp_path: Path
) -> None:
    """Not with that of the others, which are parts of it; each row without it is counted."""
    rows = StepRows(*rings, NoAccelerator())
    run_step(rows, [(Missed(), None)], 0)
    run_step(rows, [(Number(1.0), Number(0.5)), (Missed(), Number(0.5))], 100)
    found = [(row["loss"], row["last_loss"], row["loss_finite"]) for row in steps(tmp_path)]
    assert found == [(None, None, None), (None, None, True)]
    assert [row["loss"] for row in rows_of(tmp_path, "micro_batches")] == [None, 1.0, None]
    for table in ("steps", "micro_batches"):
        assert read_ring(tmp_path / table).dropped == 2


def test_a_batch_fetched_ahead_is_no_micro_batch_of_its_step(rings: Rings, tmp_path: Path) -> None:
    """It is waited for behind the last pass; the next step's first one has its row."""
    rows = StepRows(*rings, NoAccelerator())
    for start_ns in (0, 100):
        rows.open(start_ns, start_ns // 100, 1)
        rows.phases.enter(FORWARD, start_ns)
        rows.phases.leave(start_ns + 10)
        rows.lost(Number(1.0), None)
        rows.phases.enter(BACKWARD, start_ns + 10)
        rows.phases.leave(start_ns + 20)
        rows.data_waited(Wait(start_ns + 30, 10, 4, None))
        rows.close(start_ns + 50, StepEnd(50, 0, 0, 0.5, None))
    assert [(row["micro_batches"], row["samples"]) for row in steps(tmp_path)] == [(1, None)] * 2
    assert [row["data_wait_s"] for row in steps(tmp_path)] == pytest.approx([1e-8] * 2)
    assert [row["step"] for row in rows_of(tmp_path, "micro_batches")][:2] == [0, 1]


def test_a_step_that_another_thread_takes_over_is_its_own(rings: Rings, tmp_path: Path) -> None:
    """It begins anew in that thread, and so do its micro-batches."""
    rows = StepRows(*rings, NoAccelerator())
    rows.open(0, 0, 1)
    rows.restart(50, 2)
    rows.phases.enter(FORWARD, 60)
    rows.phases.leave(70)
    rows.close(100, StepEnd(50, 0, 0, 0.5, None))
    assert [row["thread_id"] for row in steps(tmp_path)] == [2]
    assert [row["thread_id"] for row in rows_of(tmp_path, "micro_batches")] == [2]


def test_what_comes_while_its_row_is_written_is_not_lost(rings: Rings, tmp_path: Path) -> None:
    """Whenever the device has finished with a loss, it gets into the rows."""
    rows = StepRows(*rings, NoAccelerator())
    run_step(rows, [(Number(NULL_FLOAT, JustComing(3.0)), None)], 1000)
    assert rows_of(tmp_path, "micro_batches")[0]["loss"] == 3.0
    assert rows_of(tmp_path, "steps")[0]["loss"] == 3.0


def test_a_device_is_asked_for_the_oldest_number_only(rings: Rings, tmp_path: Path) -> None:
    """While it is behind, a step asks twice; what has come is then in all rows, the newest too."""
    rows = StepRows(*rings, NoAccelerator())
    losses = [Asked(float(number)) for number in range(4)]
    for number, loss in enumerate(losses):
        run_step(rows, [(Number(NULL_FLOAT, loss), None)], 100 * number)
    assert [loss.times for loss in losses] == [5, 1, 1, 1]
    assert [row["loss"] for row in steps(tmp_path)] == [None] * 4
    for loss in losses:
        loss.has_come = True
    run_step(rows, [(Number(math.inf), None)], 1000)
    assert [row["loss"] for row in steps(tmp_path)] == [0.0, 1.0, 2.0, 3.0, math.inf]
    assert [row["last_loss"] for row in steps(tmp_path)[:4]] == [0.0, 1.0, 2.0, 3.0]
    assert [row["not_finite_since"] for row in steps(tmp_path)] == [None] * 4 + [0]
    assert [row["loss"] for row in rows_of(tmp_path, "micro_batches")][:4] == [0.0, 1.0, 2.0, 3.0]


def test_many_micro_batches_get_their_losses(rings: Rings, tmp_path: Path) -> None:
    """More than wait at most: a step may have as many as it likes, if the device keeps up."""
    rows = StepRows(*rings, NoAccelerator())
    run_step(rows, [(Number(NULL_FLOAT, JustComing(1.0)), None) for _ in range(64)], 0)
    run_step(rows, [(Number(1.0), None)], 10_000)
    found = [row["loss"] for row in rows_of(tmp_path, "micro_batches")]
    assert len(found) == 64, "the ring holds no more"
    assert set(found) == {1.0}


def test_a_step_that_its_optimizer_leaves_out_is_counted(rings: Rings, tmp_path: Path) -> None:
    """A fused optimizer's step runs always; whether it did anything comes from the device."""
    rows = StepRows(*rings, NoAccelerator())
    for found in (None, Number(0.0), Number(1.0), Number(NULL_FLOAT, JustComing(1.0))):
        rows.open(0, 0, 1)
        rows.found_inf = found
        rows.close(10, StepEnd(10, 0, 0, 0.5, None))
    assert [row["skipped"] for row in steps(tmp_path)] == [None, 0, 1, 1]


HALF, BFLOAT = Precision(16), Precision(16, is_bfloat=True)
SINGLE, SHORTENED = Precision(32), Precision(32, is_tensor_float=True)


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", HALF, 989e12),
        ("NVIDIA H100 80GB HBM3", SHORTENED, 494.5e12),
        ("NVIDIA H100 80GB HBM3", SINGLE, 67e12),
        ("NVIDIA H100 80GB HBM3", Precision(64), None),
        ("NVIDIA H100 PCIe", BFLOAT, 756e12),
        ("NVIDIA A100-SXM4-80GB", HALF, 312e12),
        ("NVIDIA H200 MIG 1g.18gb", HALF, 989e12 * 16 / 132),
        ("NVIDIA A40 MIG 1g", HALF, None),
        ("Tesla T4", HALF, 65e12),
        ("Tesla T4", BFLOAT, None),
        ("Tesla T4", SHORTENED, 8.1e12),
        ("NVIDIA L4", HALF, 121e12),
        ("NVIDIA GeForce RTX 9999", HALF, None),
        ("NVIDIA H200", None, None),
    ],
)
def test_peaks_go_by_the_device_and_what_it_multiplies(
    name: str, precision: Precision | None, peak: float | None
) -> None:
    """A device's name as the driver writes it; an unknown one has no peak, a slice its share."""
    assert peak_of(DeviceModel(name, 16), precision) == peak
    assert peak_of(None, precision) is None


@pytest.mark.parametrize(
    ("events", "begun"),
    [
        ("FFFBBB", "12"),  # all calls first
        ("FFBFBB", "3"),  # one call ahead
        ("FBFB", ""),
        ("FFB", ""),  # two calls in one loss
        ("FKB", ""),  # two losses of one call
        ("FFKBKB", "1"),
        ("FBB", ""),  # two heads on a trunk that is not trained
        ("FxFFBB", "3"),  # one that failed
        ("GFFBB", "2"),
        ("FGBB", ""),  # two models
    ],
)
def test_a_pass_of_a_call_made_ahead_is_of_a_micro_batch_of_its_own(
    events: str, begun: str
) -> None:
    """F, G: calls of two models, x: that failed, K, B: a pass that keeps its graph, and one not."""
    ahead, found = CallsAhead(), ""
    for place, event in enumerate(events):
        if event in "FG":
            ahead.called(ord(event), (None, place, None))
        elif event == "x":
            ahead.call_failed()
        else:
            size = ahead.pass_begins(keeps_graph=event == "K")
            found += str(size[1]) if size is not None else ""
    assert found == begun


def test_only_a_share_that_a_full_window_has_shown_is_undone(rings: Rings, tmp_path: Path) -> None:
    """Of ``mse / 2`` nothing is, though now and then two of them make a step."""
    rows = StepRows(*rings, NoAccelerator())
    for count, part in ((1, 0.5), (1, 0.5), (2, 0.5), (1, 0.5), (4, 0.25), (3, 0.25), (1, 0.125)):
        run_step(rows, [(Number(1.0), Number(part))] * count, 0)
    found = [row["loss"] for row in steps(tmp_path)]
    assert found == [1.0, 1.0, 2.0, 1.0, 4.0, 4.0, 1.0]
