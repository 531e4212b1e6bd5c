"""The rows of python.memory and what they are made of, told by made-up devices and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.agent.sources.accelerator import (
    Accelerator,
    DeviceMemory,
    DeviceSample,
    DeviceTotals,
)
from probing.agent.sources.accelerator.nvml import MISSING, Nvml, uuids_of
from probing.agent.sources.memory import host_figures
from probing.agent.sources.memory.host_figures import HostFiles, parse_meminfo
from probing.agent.sources.memory.memory_rows import PART_OF_BUDGET, MemoryRows
from probing.agent.sources.memory.sampler import MemorySampler
from probing.agent.sources.shared.recording import Recording
from probing.agent.sources.steps.phases import BACKWARD, DATA, FORWARD, OPTIMIZER
from probing.agent.sources.steps.rows.step_places import StepEnd
from probing.agent.sources.steps.rows.step_rows import StepRows
from probing.linux.cgroup import CgroupPaths
from probing.ring.format import NULL_INT
from probing.ring.names import decode_names
from probing.ring.peek import RingPeek
from probing.ring.writer import Names, RingWriter
from probing.script.marks import Cleaning
from probing.tables import (
    MEMORY,
    MEMORY_PHASES,
    MICRO_BATCHES,
    OPTIMIZER_STEPS,
    STEPS,
    TORCH_TRACE,
)
from tests.harness.accelerators import NoAccelerator, RecordedMemory
from tests.harness.fake_cuda import fake_nvml

pytestmark = pytest.mark.anypython

MS = 1_000_000
ALLOCATOR = ("allocated_bytes", "peak_bytes", "reserved_bytes", "peak_reserved_bytes")
DEVICE = (*ALLOCATOR, "device_used_bytes", "device_total_bytes")


class Recorded:
    """A training without torch: its step rows, and the rows of memory that they lead to."""

    def __init__(self, folder: Path, accelerator: Accelerator, share: float, cost_ns: int) -> None:
        self.folder = folder
        tables = (TORCH_TRACE, STEPS, MICRO_BATCHES, OPTIMIZER_STEPS, MEMORY)
        self.rings = [RingWriter(folder / t.name, t, 64) for t in tables]
        trace, steps, batches, optimizers, memory = self.rings
        self.rows = StepRows(steps, batches, optimizers, accelerator)
        self.recording = Recording(
            trace=trace,
            rows=self.rows,
            names=Names(folder / "names"),
            safe_points=SafePoints(),
        )
        self.sampler = MemorySampler(accelerator)
        self.memory = MemoryRows(
            self.recording,
            memory,
            accelerator,
            self.sampler,
            share,
            clock=count(MS, MS).__next__,
            processor_clock=count(0, cost_ns).__next__,
        )
        self.rows.watch_memory(self.memory)

    def run_step(self, *phases: int, took_ns: int = 100) -> None:
        """A step of phases that follow each other."""
        self.rows.open(0, self.recording.step, 1)
        for phase in phases:
            self.rows.phases.enter(phase, 0)
            self.rows.phases.leave(0)
        self.rows.close(took_ns, StepEnd(took_ns, 0, 0, 0.5, None))
        self.recording.step += 1

    def written(self) -> list[dict[str, Any]]:
        """The rows of python.memory, oldest first."""
        texts = decode_names((self.folder / "names").read_bytes())
        with RingPeek(self.folder / MEMORY.name) as ring:
            found = [ring.row(seq) for seq in range(1, ring.newest_seq() + 1)]
        rows: list[dict[str, Any]] = [dict(row.values) for row in found if row is not None]
        for row in rows:
            row["phase"] = MEMORY_PHASES[row["phase"]]
            row.update({name: texts[row[name] or 0] for name in ("label", "device")})
        return rows

    def close(self) -> None:
        """Let go of the files."""
        self.memory.close()
        self.sampler.close()
        self.recording.names.close()
        for ring in self.rings:
            ring.close()


Make = Callable[..., Recorded]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Make]:
    """Makes trainings that are told by the test."""
    made: list[Recorded] = []

    def make(
        accelerator: Accelerator | None = None, share: float = 1e9, cost_ns: int = 1
    ) -> Recorded:
        made.append(Recorded(tmp_path, accelerator or NoAccelerator(), share, cost_ns))
        return made[-1]

    yield make
    for recorded in made:
        recorded.close()


def moments(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Which moments rows are of."""
    return [(row["step"], row["micro_batch"], row["phase"]) for row in rows]


def test_each_micro_batch_has_three_rows_and_each_step_one(record: Make) -> None:
    """Two losses and two root modules are one row each, also when gradients are accumulated."""
    recorded = record()
    recorded.memory.start()
    recorded.run_step(DATA, FORWARD, FORWARD, BACKWARD, FORWARD, BACKWARD, BACKWARD, OPTIMIZER)
    recorded.run_step(FORWARD, BACKWARD, OPTIMIZER)
    of_batch = ("before_forward", "after_forward", "after_backward")
    assert moments(recorded.written()) == [
        (0, None, "attach"),
        *((0, 0, phase) for phase in of_batch),
        *((0, 1, phase) for phase in of_batch),
        (0, None, "after_step"),
        *((1, 0, phase) for phase in of_batch),
        (1, None, "after_step"),
    ]


def test_a_forward_within_an_optimizer_counts_and_one_within_a_backward_does_not(
    record: Make,
) -> None:
    """LBFGS calls the model from its step; checkpointing calls it from the backward pass."""
    recorded = record()
    recorded.memory.start()
    phases = recorded.rows.phases
    recorded.rows.open(0, 0, 1)
    for phase in (OPTIMIZER, FORWARD):
        phases.enter(phase, 0)
    phases.leave(0)
    for phase in (BACKWARD, FORWARD):
        phases.enter(phase, 0)
    for _ in range(3):
        phases.leave(0)
    assert moments(recorded.written())[1:] == [
        (0, 0, "before_forward"),
        (0, 0, "after_forward"),
        (0, 0, "after_backward"),
    ]


def test_without_a_device_its_columns_are_null_and_those_of_the_host_are_there(
    record: Make,
) -> None:
    """Not measured is NULL, never 0; the machine and the process are known by their own files."""
    recorded = record()
    recorded.memory.start()
    (row,) = recorded.written()
    assert [row[name] for name in DEVICE] == [None] * len(DEVICE)
    assert row["device"] == "cpu"
    assert 0 < row["resident_bytes"] < row["node_total_bytes"]
    assert 0 < row["node_used_bytes"] < row["node_total_bytes"]


def test_a_device_that_comes_into_use_has_a_baseline_of_its_own(record: Make) -> None:
    """Its first figures are written twice, as `attach` and as what they are; peaks as they are."""
    figures = [DeviceMemory("cuda:1", n, n + 10, n + 20, n + 30) for n in (1, 2, 3, 4)]
    device = RecordedMemory([None, *figures], DeviceTotals(500, 1000))
    recorded = record(device)
    recorded.memory.start()
    recorded.run_step(FORWARD, BACKWARD)
    rows = recorded.written()
    told = [(row["phase"], row["device"], *(row[name] for name in DEVICE)) for row in rows]
    assert told[1:3] == [
        ("attach", "cuda:1", 1, 11, 21, 31, 500, 1000),
        ("before_forward", "cuda:1", 1, 11, 21, 31, 500, 1000),
    ]
    # The row after the forward pass is that of the moment at which the backward pass began.
    assert [row["allocated_bytes"] for row in rows] == [None, 1, 1, 3, 4]
    assert device.asked == 0, "the whole device is asked for in no thread of the training's"


def test_a_device_that_is_in_use_as_recording_begins_has_one_baseline(record: Make) -> None:
    """The row as recording begins is it: the first step writes no second one."""
    figures = [DeviceMemory("cuda:0", n, n + 10, n + 20, n + 30) for n in range(1, 6)]
    recorded = record(RecordedMemory([*figures], None))
    recorded.memory.start()
    recorded.run_step(FORWARD, BACKWARD)
    told = [(row["phase"], row["allocated_bytes"]) for row in recorded.written()]
    assert told[:2] == [("attach", 1), ("before_forward", 2)]
    assert [phase for phase, _ in told].count("attach") == 1


def test_steps_that_are_too_short_have_rows_now_and_then(record: Make) -> None:
    """Where rows of 5 ns may take a tenth of steps of 10 ns, every fifth step has them."""
    recorded = record(share=0.1 / PART_OF_BUDGET, cost_ns=1)
    recorded.memory.start()
    for _ in range(9):
        recorded.run_step(FORWARD, BACKWARD, took_ns=10)
    assert sorted({row["step"] for row in recorded.written()}) == [0, 5]
    assert recorded.memory.last_ns == 5, "the rows of three phases, one of them written twice"


def test_while_more_is_in_use_than_ever_each_step_has_rows(record: Make) -> None:
    """Also where that costs too much: they are the last words of a process that is then killed."""
    recorded = record(share=0.1 / PART_OF_BUDGET, cost_ns=1)
    recorded.memory.start()
    for step in range(5):
        recorded.sampler.has_grown = step in {2, 3}
        recorded.run_step(FORWARD, BACKWARD, took_ns=10)
    assert sorted({row["step"] for row in recorded.written()}) == [0, 2, 3]


def test_marks_are_rows_of_their_own_until_recording_stops(record: Make) -> None:
    """Each mark has its label and its row; nothing is written once recording is off."""
    recorded = record()
    recorded.memory.start()
    for label in ("one", "one", "two"):
        recorded.memory.seen(label)
    recorded.memory.stop()
    recorded.memory.seen("three")
    recorded.run_step(FORWARD, BACKWARD)
    rows = recorded.written()
    assert [(row["phase"], row["label"]) for row in rows] == [
        ("attach", None),
        ("mark", "one"),
        ("mark", "one"),
        ("mark", "two"),
    ]


def test_a_mark_that_cleans_up_does_so_before_its_row_and_begins_peaks_anew_after(
    tmp_path: Path,
) -> None:
    """The time that garbage took is in that row alone; a mark without wishes does nothing."""
    told = [DeviceMemory("cuda:0", 1, 2, 3, 4), DeviceMemory("cuda:0", 1, 2, 2, 4)]
    accelerator = RecordedMemory([None, *told], None)
    recorded = Recorded(tmp_path, accelerator, 1.0, 0)
    recorded.memory.start()
    recorded.memory.seen("before")
    assert accelerator.cleaned == []
    recorded.memory.seen("after", Cleaning(gc=True, empty_cache=True, reset_peaks=True))
    assert accelerator.cleaned == ["empty_cache", "reset_peaks"]
    assert accelerator.asked == 1
    before, after = recorded.written()[-2:]
    recorded.close()
    assert (before["reserved_bytes"], before["gc_ns"]) == (3, None)
    assert after["reserved_bytes"] == 2
    assert after["gc_ns"] > 0


def memory(used: int, total: int) -> dict[str, Any]:
    """A device that tells of its memory."""
    return {"MemoryInfo": SimpleNamespace(used=used, total=total)}


def test_nvml_is_asked_by_uuid_and_what_it_does_not_tell_is_null() -> None:
    """The first name that it knows counts; an unknown device and a refusal leave a sentence."""
    nvml = Nvml(fake_nvml({"MIG-b": memory(3, 7), "GPU-mute": {}}))
    assert nvml.totals(("GPU-b", "MIG-b")) == DeviceTotals(3, 7)
    assert nvml.note is None
    assert nvml.totals(("GPU-x",)) is None
    assert "GPU-x" in str(nvml.note)
    assert nvml.totals(("GPU-mute",)) is None
    assert "Not Supported" in str(nvml.note)


def test_a_sample_has_what_the_device_tells() -> None:
    """A MIG slice has no utilisation and no clocks: NULL, never 0."""
    whole = {
        **memory(3, 7),
        "UtilizationRates": SimpleNamespace(gpu=97, memory=40),
        "ComputeRunningProcesses": [
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=2),
            SimpleNamespace(pid=1, usedGpuMemory=1),
        ],
        "PowerUsage": 650_000,
        "EnforcedPowerLimit": 700_000,
        "ClockInfo": lambda clock: {1: 1980, 2: 2619}[clock],
        "CurrentClocksThrottleReasons": 0x44,
        "Temperature": lambda sensor: 61,
        "TotalEccErrors": lambda kind, counter: 0,
        "RemappedRows": (1, 2, False, False),
    }
    nvml = Nvml(fake_nvml({"GPU-a": whole, "MIG-b": memory(1, 2)}, xids=[79]))
    told = nvml.sample("cuda:0", ("GPU-a",))
    assert told is not None
    assert told == DeviceSample(
        device="cuda:0", uuid="GPU-a", totals=DeviceTotals(3, 7), busy=0.97, memory_busy=0.4,
        own_bytes=2, processes=2, power_w=650.0, power_limit_w=700.0, sm_mhz=1980,
        memory_mhz=2619, throttled="power cap;hardware thermal", temperature_c=61, ecc_errors=0,
        remapped_rows=3, xid=79,
    )  # fmt: skip
    again = nvml.sample("cuda:0", ("GPU-a",))
    assert again is not None
    assert again.xid is None
    slice_ = nvml.sample("cuda:0", ("MIG-b",))
    assert slice_ is not None
    assert (slice_.totals, slice_.busy, slice_.throttled) == (DeviceTotals(1, 2), None, None)


def test_rates_of_links_are_what_counters_have_grown_by() -> None:
    """Those of NVLink since the sample before; the first, a reset and a refusal are NULL."""
    counters, now = [[10, 20], [12, 30], [1, 40]], [0.0]

    def fields(asked: list[int]) -> list[Any]:
        values = counters.pop(0)
        return [
            SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=value)) for value in values
        ]

    told = {
        **memory(3, 7),
        "PcieThroughput": lambda counter: {0: 5, 1: 7}[counter],
        "FieldValues": fields,
    }
    mute = {
        **memory(3, 7),
        "FieldValues": lambda asked: [SimpleNamespace(nvmlReturn=3, value=None) for _ in asked],
    }
    nvml = Nvml(fake_nvml({"GPU-a": told, "GPU-b": mute}), clock=lambda: now[0])
    rates = []
    for _ in range(3):
        sample = nvml.sample("cuda:0", ("GPU-a",))
        assert sample is not None
        assert (sample.pcie_sent_bytes_per_s, sample.pcie_received_bytes_per_s) == (5e3, 7e3)
        rates.append((sample.nvlink_sent_bytes_per_s, sample.nvlink_received_bytes_per_s))
        now[0] += 2.0
    assert rates == [(None, None), (1024.0, 5120.0), (None, 5120.0)]
    sample = nvml.sample("cuda:1", ("GPU-b",))
    assert sample is not None
    assert (sample.pcie_sent_bytes_per_s, sample.nvlink_sent_bytes_per_s) == (None, None)


def test_without_the_package_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are NULL, and the source says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    nvml = Nvml()
    assert nvml.totals(("GPU-a",)) is None
    assert nvml.note == MISSING


@pytest.mark.parametrize(
    ("uuid", "visible", "ordinal", "names"),
    [
        ("a-1", None, 0, ("GPU-a-1", "MIG-a-1")),
        ("a-1", "2,3", 1, ("GPU-a-1", "MIG-a-1")),
        ("GPU-a-1", None, 0, ("GPU-a-1",)),
        ("a-1", "GPU-x, GPU-a", 1, ("GPU-a-1", "MIG-a-1", "GPU-a")),
        ("a-1", "MIG-z", 0, ("MIG-z", "GPU-a-1", "MIG-a-1")),
        (None, "GPU-x,GPU-y", 1, ("GPU-y",)),
        (None, "0", 0, ()),
        (None, "GPU-x", 3, ()),
    ],
)
def test_names_of_a_device(
    uuid: str | None, visible: str | None, ordinal: int, names: tuple[str, ...]
) -> None:
    """The UUID that torch tells goes first, but for a slice that the environment names."""
    assert uuids_of(uuid, visible=visible, ordinal=ordinal) == names


def test_cached_files_are_as_old_as_the_rest_near_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they are read once a second, which is dearer than the other figures."""
    (tmp_path / "max").write_text("1000\n")
    paths = CgroupPaths(*(str(tmp_path / name) for name in ("now", "max", "events", "stat", "-")))
    monkeypatch.setattr(host_figures, "find_cgroup", lambda _: paths)
    files, seen = HostFiles(), []
    for tenths, used in enumerate((800, 899, 900, 950, 700), 1):
        (tmp_path / "now").write_text(f"{used}\n")
        (tmp_path / "stat").write_text(f"anon 1\ninactive_file {tenths}0\nactive_file {tenths}\n")
        found = files.figures(tenths * 100_000_000)
        seen.append((found.cgroup_bytes, found.cgroup_cache_bytes, found.cgroup_limit_bytes))
    files.close()
    assert seen == [
        (800, 11, 1000), (899, 11, 1000), (900, 33, 1000), (950, 44, 1000), (700, 44, 1000),
    ]  # fmt: skip


def test_the_machines_use_is_what_it_could_not_give() -> None:
    """Total less available, in bytes; NULL on a kernel that tells no available memory."""
    text = b"MemTotal:        1000 kB\nMemFree:          10 kB\n%s:    300 kB\nCached: 9 kB\nSw"
    assert parse_meminfo(text % b"MemAvailable") == (700 << 10, 1000 << 10)
    assert parse_meminfo(text % b"Buffers") == (NULL_INT, 1000 << 10)
    assert parse_meminfo(b"") == (NULL_INT, NULL_INT)
