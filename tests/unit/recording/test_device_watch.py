"""What the agent's own thread sees of the device, of one that is made up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.agent.sources.accelerator import DeviceSample, DeviceTotals
from probing.agent.sources.memory.device_watch import DeviceWatch
from probing.agent.sources.memory.sampler import MemorySampler
from probing.agent.sources.shared.recording import Recording
from probing.agent.sources.steps.rows.step_rows import StepRows
from probing.ring.names import decode_names
from probing.ring.peek import RingPeek
from probing.ring.writer import Names, RingWriter
from probing.rundir.folders import ProcessFolder
from probing.tables import DEVICES, MICRO_BATCHES, OPTIMIZER_STEPS, STEPS, TORCH_TRACE
from tests.harness.accelerators import NoAccelerator
from tests.harness.targets import wait_until

pytestmark = pytest.mark.anypython


class Seen(NoAccelerator):
    """A device with one figure, and who has asked for it."""

    def __init__(self) -> None:
        self.askers: set[str] = set()

    def device_sample(self) -> DeviceSample:
        """Hot, and held down for that; the rest it does not tell."""
        self.askers.add(threading.current_thread().name)
        told: dict[str, Any] = dict.fromkeys(DeviceSample._fields)
        told |= {"device": "cuda:1", "uuid": "GPU-b", "totals": DeviceTotals(3, 7)}
        return DeviceSample(**{**told, "throttled": "hardware thermal", "temperature_c": 90})


class Polled:
    """Stands in for the record of collectives."""

    def __init__(self) -> None:
        self.rows = SimpleNamespace(poll=self._poll)
        self.times = 0

    def _poll(self, now_ns: int) -> None:
        self.times += 1


_TABLES = (TORCH_TRACE, STEPS, MICRO_BATCHES, OPTIMIZER_STEPS)


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    """One of no training."""
    rings = [RingWriter(tmp_path / t.name, t, 64) for t in _TABLES]
    trace, steps, batches, optimizers = rings
    names = Names(tmp_path / "names")
    rows = StepRows(steps, batches, optimizers, NoAccelerator())
    yield Recording(trace=trace, rows=rows, names=names, safe_points=SafePoints())
    names.close()
    for ring in rings:
        ring.close()


def test_it_is_asked_in_a_thread_of_its_own_from_its_first_use(
    recording: Recording, tmp_path: Path
) -> None:
    """Its rows have what it tells; while the training stands still, collectives are seen to."""
    device, polled = Seen(), Polled()
    recording.collectives = polled
    sampler = MemorySampler(device)
    folder = ProcessFolder(tmp_path, 1, 1)
    watch = DeviceWatch(recording, folder, device, sampler, interval_s=0.01)
    watch.start()
    assert watch.note() == "no accelerator is in use"
    watch.used()
    watch.used()
    path = folder.ring(DEVICES.name)

    def newest() -> int:
        if not path.exists():
            return 0
        with RingPeek(path) as ring:
            return ring.newest_seq()

    wait_until(lambda: newest() >= 2, "two rows")
    watch.stop()
    assert device.askers == {"probing-device"}
    assert polled.times >= 1
    assert watch.guard.faults == 0
    with RingPeek(path) as ring:
        row = ring.row(1)
    assert row is not None
    texts = decode_names((tmp_path / "names").read_bytes())
    words = {name: texts[int(row.values[name] or 0)] for name in ("device", "uuid", "throttled")}
    assert words == {"device": "cuda:1", "uuid": "GPU-b", "throttled": "hardware thermal"}
    told = {name: row.values[name] for name in ("used_bytes", "temperature_c", "busy", "xid")}
    assert told == {"used_bytes": 3, "temperature_c": 90, "busy": None, "xid": None}
    watch.close()
    sampler.close()
