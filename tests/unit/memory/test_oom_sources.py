"""What sees out-of-memory errors: the allocator's callback, and the guard around steps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="these are facts about its optimizers")

import torch

from probing.agent.recording.safe_points import SafePoints
from probing.agent.sources.accelerator import Accelerator, OutOfMemory
from probing.agent.sources.calls.at_work import TorchAtWork
from probing.agent.sources.calls.backward.module_backward import ModuleBackward
from probing.agent.sources.calls.names.module_names import ModuleNames
from probing.agent.sources.memory.sampler import MemorySampler
from probing.agent.sources.out_of_memory.ooms import Ooms
from probing.agent.sources.out_of_memory.rows import OomRings
from probing.agent.sources.out_of_memory.step_errors import StepErrors
from probing.agent.sources.shared.recording import Recording
from probing.agent.sources.steps.phases import FORWARD
from probing.agent.sources.steps.rows.step_rows import StepRows
from probing.agent.sources.storage import storages
from probing.agent.sources.storage.bounded.sights import Limits
from probing.ring.names import decode_names
from probing.ring.peek import RingPeek
from probing.ring.writer import Names, RingWriter
from probing.tables import (
    MICRO_BATCHES,
    OOM_CATEGORIES,
    OOM_GROWTH,
    OOM_PHASES,
    OOMS,
    OPTIMIZER_STEPS,
    STEPS,
    TORCH_TRACE,
    Table,
)
from tests.harness.accelerators import NoAccelerator
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.torch

GIB = 1 << 30
TEXT = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.11 GiB of"
    " which 1.25 GiB is free. Of the allocated memory 50.00 GiB is allocated by PyTorch, and"
    " 27.00 GiB is reserved by PyTorch but unallocated."
)


class FullDevice(NoAccelerator):
    """A device that comes into use when it is told to, and whose allocator then tells of errors."""

    def __init__(self) -> None:
        self.is_in_use = False
        self.told: list[OutOfMemory] = []

    def watch_out_of_memory(self, told: OutOfMemory) -> bool:
        """Once it is in use."""
        if self.is_in_use:
            self.told.append(told)
        return self.is_in_use

    def allocator_bytes(self, index: int) -> tuple[int | None, int | None]:
        """As recorded on a device."""
        return 50 * GIB + index, 77 * GIB


class Watched:
    """A recording without a training, and what it writes of errors."""

    def __init__(self, folder: Path, accelerator: Accelerator) -> None:
        self.folder = folder
        tables = (
            *(TORCH_TRACE, STEPS, MICRO_BATCHES, OPTIMIZER_STEPS),
            *(OOMS, OOM_CATEGORIES, OOM_GROWTH),
        )
        self.rings = [RingWriter(folder / t.name, t, 64) for t in tables]
        trace, steps, batches, optimizers, *rings = self.rings
        rows = StepRows(steps, batches, optimizers, accelerator)
        names = Names(folder / "names")
        self.recording = Recording(trace=trace, rows=rows, names=names, safe_points=SafePoints())
        self.recording.training_thread = self.recording.threads.state.native_id
        sampler = MemorySampler(accelerator)
        modules = ModuleNames(names, self.recording.objects.models)
        backward = ModuleBackward(self.recording, sampler, modules)
        self.ooms = Ooms(self.recording, modules, backward, accelerator, OomRings(*rings))
        self.ooms.start()

    def fail(self) -> None:
        """A call of a module fails as on a device that is full."""
        try:
            raise torch.OutOfMemoryError(TEXT)
        except RuntimeError:
            self.ooms.raised(FORWARD)

    def written(self) -> list[dict[str, Any]]:
        """The rows of python.ooms."""
        rows = self._rows_of(OOMS, "device", "error")
        for row in rows:
            row["phase"] = OOM_PHASES[row["phase"]]
        return rows

    def categories(self) -> dict[str, int | None]:
        """The bytes of what was in memory at the only error."""
        rows = self._rows_of(OOM_CATEGORIES, "category")
        return {row["category"]: row["bytes"] for row in rows}

    def _rows_of(self, table: Table, *names: str) -> list[dict[str, Any]]:
        """The rows of a table, with the texts of some columns."""
        texts = decode_names((self.folder / "names").read_bytes())
        with RingPeek(self.folder / table.name) as ring:
            found = [ring.row(seq) for seq in range(1, ring.newest_seq() + 1)]
        rows: list[dict[str, Any]] = [dict(row.values) for row in found if row is not None]
        for row in rows:
            row.update({name: texts[row[name] or 0] for name in names})
        return rows


@pytest.fixture
def device() -> FullDevice:
    """A device that is not in use yet."""
    return FullDevice()


@pytest.fixture
def watched(tmp_path: Path, device: FullDevice) -> Iterator[Watched]:
    """A recording that watches it."""
    made = Watched(tmp_path, device)
    yield made
    made.ooms.close()
    for ring in made.rings:
        ring.close()


def test_the_allocator_is_asked_once_it_is_in_use(watched: Watched, device: FullDevice) -> None:
    """Not before: torch would crash; and not twice, since torch forgets no function."""
    watched.ooms.step_began()
    assert device.told == []
    assert watched.ooms.remains() == []
    device.is_in_use = True
    watched.ooms.step_began()
    watched.ooms.step_began()
    assert len(device.told) == 1
    assert len(watched.ooms.remains()) == 1


def test_the_allocators_word_and_the_exception_are_one_row(
    watched: Watched, device: FullDevice
) -> None:
    """The exact figures are the allocator's, the text is the exception's."""
    device.is_in_use = True
    watched.ooms.step_began()
    exact = 2 * GIB + 512
    device.told[0](1, exact, 79 * GIB, GIB)
    (before,) = watched.written()
    assert (before["requested_bytes"], before["error"]) == (exact, None)
    watched.fail()
    (row,) = watched.written()
    assert row["device"] == "cuda:1"
    assert (row["requested_bytes"], row["free_bytes"], row["total_bytes"]) == (exact, GIB, 79 * GIB)
    assert (row["allocated_bytes"], row["reserved_bytes"]) == (50 * GIB + 1, 77 * GIB)
    assert row["error"].startswith("OutOfMemoryError: CUDA out of memory.")


@pytest.mark.parametrize(("has_xpu", "name"), [(True, "xpu:1"), (False, "cuda:1")])
def test_the_device_goes_by_the_name_of_its_tensors(
    watched: Watched,
    device: FullDevice,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_xpu: bool,
    name: str,
) -> None:
    """Else nothing of what was in memory is found to be on it."""
    monkeypatch.setattr(torch._C, "_has_xpu", has_xpu)
    device.is_in_use = True
    watched.ooms.step_began()
    device.told[0](1, GIB, 79 * GIB, GIB)
    assert [row["device"] for row in watched.written()] == [name]


def test_another_error_is_another_row(watched: Watched, device: FullDevice) -> None:
    """An exception for another size than the allocator told is not taken for the same."""
    device.is_in_use = True
    watched.ooms.step_began()
    device.told[0](1, GIB, 79 * GIB, GIB)
    watched.fail()
    assert [row["requested_bytes"] for row in watched.written()] == [GIB, 2 * GIB]


def test_the_callback_does_nothing_once_recording_is_off(
    watched: Watched, device: FullDevice
) -> None:
    """Torch keeps the function for good; it must not write to rings that are closed."""
    device.is_in_use = True
    watched.ooms.step_began()
    watched.ooms.stop()
    device.told[0](1, GIB, 79 * GIB, GIB)
    assert watched.written() == []
    assert watched.ooms.guard.faults == 0


def test_an_exception_counts_once_on_its_way_up(watched: Watched) -> None:
    """Seen at every module that it leaves, it is one row; raised again in the same place, two."""

    def inner() -> None:
        try:
            raise torch.OutOfMemoryError(TEXT)
        except RuntimeError:
            watched.ooms.raised(FORWARD)
            raise

    def outer() -> None:
        try:
            inner()
        except RuntimeError:
            watched.ooms.raised(FORWARD)
            raise

    for count in (1, 2):
        with contextlib.suppress(RuntimeError):
            outer()
        assert len(watched.written()) == count


class Passing:
    """The thread that asks is in the midst of a pass."""

    def is_here(self) -> bool:
        """It is."""
        return True

    def is_elsewhere(self) -> bool:
        """No other is."""
        return False

    def is_transformed(self) -> bool:
        """It is not."""
        return False


class Failing(torch.optim.SGD):
    """An optimizer whose step fails."""

    def step(self, closure: Any = None) -> Any:
        """Fail."""
        raise MemoryError


@pytest.mark.slow
def test_tensors_are_left_alone_while_another_thread_is_in_a_pass(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a thread that runs out of memory during a backward pass of the training.

    WHEN its error is recorded THEN the tensors, at which the pass is, are not looked for; a later
    error outside of any pass has them looked for.
    """
    looks: list[Recording] = []

    def looked_for(recording: Recording, *, limits: Limits) -> list[Any]:
        looks.append(recording)
        return []

    def fail() -> None:
        watched.ooms.ended_by(MemoryError())

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            other = threading.Thread(target=fail)
            other.start()
            other.join(DEADLINE_S)
            return gradient * 2

    monkeypatch.setattr(storages, "storages_now", looked_for)
    watched.recording.safe_points.at_work = TorchAtWork()
    Failing.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(watched.written()) == 1
    assert looks == []
    fail()
    assert looks == [watched.recording]


@pytest.mark.parametrize("is_alone", [True, False])
def test_gradients_that_cannot_be_read_are_of_no_known_size(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, *, is_alone: bool
) -> None:
    """Another thread may let go of them: they are among the others then, and it is told."""
    recording, layer = watched.recording, torch.nn.Linear(64, 64)
    layer(torch.ones(1, 64)).sum().backward()
    recording.objects.roots.add(layer)
    monkeypatch.setattr(recording.trainers, "is_alone", lambda _: is_alone)
    recording.safe_points.at_work = Passing()
    watched.ooms.ended_by(MemoryError())
    found = watched.categories()
    assert (found["parameters"] or 0) >= 64 * 64 * 4
    assert (found["gradients"] is None) is not is_alone


def test_the_guard_of_steps_comes_and_goes() -> None:
    """It sees what leaves a step, also one that a scheduler has wrapped, and leaves no trace."""
    seen: list[object] = []
    errors = StepErrors(seen.append)
    model = torch.nn.Linear(2, 2)
    optimizer = Failing(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.ConstantLR(optimizer)
    before = dict(vars(Failing))
    for count in (1, 2):
        errors.watch(optimizer)
        with pytest.raises(MemoryError):
            optimizer.step()
        assert len(seen) == count
        assert dict(vars(Failing)) == before
        errors.stop()
        with pytest.raises(MemoryError):
            optimizer.step()
        assert len(seen) == count
