"""What calls take on a made-up CUDA, where one thread begins what another one ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from probing.agent.recording.safe_points import SafePoints  # noqa: E402
from probing.agent.sources.accelerator import Accelerator  # noqa: E402
from probing.agent.sources.calls.device_times import BACKWARD, FORWARD, DeviceTimes  # noqa: E402
from probing.agent.sources.calls.names.module_names import IDS  # noqa: E402
from probing.agent.sources.shared.recording import Recording  # noqa: E402
from probing.agent.sources.steps.rows.step_rows import StepRows  # noqa: E402
from probing.ring.peek import RingPeek  # noqa: E402
from probing.ring.writer import Names, RingWriter  # noqa: E402
from probing.rundir.folders import ProcessFolder  # noqa: E402
from probing.tables import DEVICE_TIMES, MICRO_BATCHES, OPTIMIZER_STEPS, STEPS, TORCH_TRACE  # noqa: E402
from tests.harness.fake_cuda import FakeCuda  # noqa: E402
from tests.harness.fake_torch import installed  # noqa: E402

pytestmark = pytest.mark.torch

LAYER = IDS.pack(1, 2, 3)

_TABLES = (TORCH_TRACE, STEPS, MICRO_BATCHES, OPTIMIZER_STEPS)


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    """A made-up CUDA in use."""
    with installed(FakeCuda(home=0)) as fake:
        fake.start()
        yield fake


@pytest.fixture
def times(cuda: FakeCuda, tmp_path: Path) -> Iterator[DeviceTimes]:
    """A step is being timed."""
    rings = [RingWriter(tmp_path / t.name, t, 64) for t in _TABLES]
    trace, steps, batches, optimizers = rings
    names, seam = Names(tmp_path / "names"), Accelerator()
    rows = StepRows(steps, batches, optimizers, seam)
    recording = Recording(trace=trace, rows=rows, names=names, safe_points=SafePoints())
    made = DeviceTimes(recording, ProcessFolder(tmp_path, 1, 1), seam, 1e9)
    made.start()
    made.step_began(0)
    yield made
    made.close()
    names.close()
    for ring in rings:
        ring.close()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of python.device_times."""
    with RingPeek(ProcessFolder(folder, 1, 1).ring(DEVICE_TIMES.name)) as ring:
        found = [ring.row(seq) for seq in range(1, ring.newest_seq() + 1)]
    return [dict(row.values) for row in found if row is not None]


def test_the_thread_of_autograd_begins_what_the_caller_ends(
    times: DeviceTimes, cuda: FakeCuda, tmp_path: Path
) -> None:
    """The pass of the first layer ends with the whole pass, in the thread that called for it."""
    thread = threading.Thread(target=lambda: times.entered(7, LAYER, BACKWARD, 1))
    thread.start()
    thread.join()
    cuda.work(0.25)
    times.left(7)
    cuda.finish()
    times.step_ended(1_000)
    (row,) = rows_of(tmp_path)
    assert (row["device_s"], row["stage"], row["thread_id"]) == (0.25, BACKWARD, thread.native_id)
    assert times.guard.faults == 0


def test_a_step_is_written_once_all_its_queues_have_passed(
    times: DeviceTimes, cuda: FakeCuda, tmp_path: Path
) -> None:
    """The last call of a step is done at once, one before it lies in a busy queue."""
    with torch.cuda.Stream(torch.device("cuda", 0)):
        times.entered(1, LAYER, FORWARD, 1)
        cuda.work(2.0)
        times.left(1)
    times.entered(2, LAYER, FORWARD, 1)
    times.left(2)
    times.step_ended(1_000)
    assert rows_of(tmp_path) == []
    cuda.advance(3.0)
    times.step_began(1)
    times.step_ended(1_000)
    assert [row["device_s"] for row in rows_of(tmp_path)] == [2.0, 0.0]
    assert times.guard.faults == 0
