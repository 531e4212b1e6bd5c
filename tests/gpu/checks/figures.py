"""What is on record is what was."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from probing.agent.sources.storage.memory_tables import segment_rows
from probing.tables import MEMORY_SEGMENTS
from tests.gpu.devices import Device, FakeDevice
from tests.gpu.findings import Finding, expect, left_out, limit, seen
from tests.gpu.trainings import ALL_STEPS, Recorded, Small, gpt, pinned_bytes, wait_for

SEGMENT_COLUMNS = tuple(column.name for column in MEMORY_SEGMENTS.columns)
_MIB = 1 << 20
_BEHIND_S = 0.05
_SLEPT_S = 0.01


def numbers(device: Device) -> Iterator[Finding]:
    """Losses and norms are the script's own, though the device is busy with something else."""
    recorded = Recorded(**ALL_STEPS)
    device.begin()
    training, norms = Small(device), []
    for _ in range(20):
        device.sleep(_BEHIND_S)
        loss = training.model(training.x).square().mean()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(training.model.parameters(), 1.0).detach())
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
        training.losses.append(loss.detach())
    torch.cuda.synchronize()
    training.steps(2)
    rows = recorded.rows("steps")[:20]
    for name, told in (("loss", training.losses), ("grad_norm", norms)):
        own = [float(value) for value in told[:20]]
        off = [abs((row[name] or math.inf) - value) for row, value in zip(rows, own, strict=True)]
        yield limit(f"{name}: the largest difference in 20 steps", max(off), most=1e-5)
    yield from _skipped(device, recorded)
    yield expect("problems of the record", recorded.problems(), must=[])


def _skipped(device: Device, recorded: Recorded) -> Iterator[Finding]:
    """A fused optimizer leaves out a step whose gradients have overflowed."""
    model = nn.Linear(16, 16).to(device.here)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu" if device.is_fake else "cuda", init_scale=4.0)
    begun = len(recorded.rows("steps"))
    for number in range(6):
        x = torch.full((4, 16), math.inf if number == 2 else 1.0, device=device.here)
        scaler.scale(model(x).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        device.tick(1.0)
    torch.cuda.synchronize()
    rows = recorded.rows("steps")[begun:]
    yield expect(
        "steps left out by a fused optimizer", sum(r["skipped"] or 0 for r in rows), must=1
    )


class _Sleeps(nn.Module):
    """A module that takes just so long on the device."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, device=device.here))
        self.device = device

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sleep, and multiply."""
        self.device.sleep(_SLEPT_S)
        return x * self.weight


def device_times(device: Device) -> Iterator[Finding]:
    """Modules take what events of the script's own say, the first and the containers too."""
    recorded = Recorded(**ALL_STEPS)
    device.begin()
    model = nn.Sequential(_Sleeps(device), nn.Sequential(_Sleeps(device)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x, took = torch.ones(4, device=device.here), []
    for _ in range(10):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        result = model(x)
        last.record()
        result.sum().backward()
        optimizer.step()
        torch.cuda.synchronize()
        took.append(first.elapsed_time(last) * 1e-3)
    model(x)
    rows = recorded.rows("device_times")
    own = sorted(took)[len(took) // 2]
    for module, want in (("0", own / 2), ("1", own / 2), ("1.0", own / 2), ("Sequential", own)):
        found = sorted(
            r["device_s"] for r in rows if (r["module"], r["stage"]) == (module, "forward")
        )
        middle = found[len(found) // 2] if found else math.inf
        yield limit(
            f"{module}: off its own events by", abs(middle / want - 1) * 100, most=5, unit="%"
        )
    passes = {row["module"] for row in rows if row["stage"] == "backward"}
    yield expect("the whole backward pass is timed", "Sequential" in passes, must=True)
    host_bound = [row["host_bound"] for row in recorded.rows("steps")[1:9]]
    yield expect(
        "a script that waits in each step keeps its device waiting", set(host_bound), must={1}
    )
    yield expect("problems of the record", recorded.problems(), must=[])


def memory(device: Device) -> Iterator[Finding]:
    """The allocator's figures are torch's, and an out-of-memory error is on record."""
    recorded = Recorded()
    device.begin()
    training = Small(device)
    training.steps(10)
    figures = recorded.training.accelerator.memory_figures()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    yield expect("allocated bytes", figures.allocated_bytes, must=allocated)
    pinned = recorded.training.pinned_memory()
    own = pinned_bytes()
    yield expect("pinned bytes", None if pinned is None else pinned.bytes, must=own)
    yield expect("reserved bytes", figures.reserved_bytes, must=reserved)
    # Called inside of a module, as where memory runs out.
    with contextlib.suppress(torch.OutOfMemoryError):
        _Hungry(device)(training.x)
    training.steps(5)
    (oom, *more) = recorded.rows("ooms")
    yield expect("errors on record", 1 + len(more), must=1)
    yield expect("where", oom["device"], must=str(device.here))
    yield expect("problems of the record", recorded.problems(), must=[])


_TOLD = (
    "busy",
    "power_w",
    "sm_mhz",
    "temperature_c",
    "throttled",
    "processes",
    "own_bytes",
    "ecc_errors",
    "pcie_sent_bytes_per_s",
    "pcie_received_bytes_per_s",
    "nvlink_sent_bytes_per_s",
    "nvlink_received_bytes_per_s",
)


class _Hungry(nn.Module):
    """Asks for more than there is."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take 64 TiB."""
        return torch.empty(1 << 24, 1 << 20, device=self.device.here)


def allocator(device: Device) -> Iterator[Finding]:
    """Another allocator tells less, and switches nothing off."""
    if isinstance(device, FakeDevice):
        device.cuda.allocator = "cudaMallocAsync"
    recorded = Recorded(**ALL_STEPS)
    device.begin()
    training = Small(device)
    training.steps(20)
    yield expect("segments", recorded.training.segments(), must=None)
    yield expect("problems of the record", recorded.problems(), must=[])
    yield seen("what is told of it", "; ".join(recorded.training.accelerator.notes()) or "nothing")


def expandable(device: Device) -> Iterator[Finding]:
    """Segments that can grow add up to what the allocator says, with a history and without."""
    if isinstance(device, FakeDevice):
        device.cuda.is_expandable = True
    recorded = Recorded(**ALL_STEPS)
    device.begin()
    training, tensors = Small(device), list[torch.Tensor]()
    for size in (1 << 10, 1 << 20, 1 << 24):
        training.steps(5)
        tensors.append(torch.empty(size, device=device.here))
    torch.cuda.synchronize()
    rows = list(segment_rows(recorded.training.segments() or ()))
    cells: list[dict[str, Any]] = [dict(zip(SEGMENT_COLUMNS, row, strict=True)) for row in rows]
    yield expect("all segments can grow", {row["expandable"] for row in cells}, must={True})
    for name, own in (
        ("allocated_bytes", torch.cuda.memory_allocated()),
        ("reserved_bytes", torch.cuda.memory_reserved()),
    ):
        yield expect(f"{name} of all segments", sum(row[name] for row in cells), must=own)
    figures = recorded.training.accelerator.memory_figures()
    yield expect("reserved bytes", figures.reserved_bytes, must=torch.cuda.memory_reserved())
    del tensors
    torch.cuda.empty_cache()
    training.steps(5)
    yield expect("problems of the record", recorded.problems(), must=[])


def _asked_to_compute(device: Device, recorded: Recorded) -> Iterator[Finding]:
    """`python.device_checks`, from another thread, twice: it is right, and keeps little."""
    reserved = [torch.cuda.memory_reserved()]
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            checks = pool.submit(recorded.training.check_devices).result()
        own = [(one.ok, one.error) for one in checks if one.device == str(device.here)]
        yield expect("asked to compute, beside the training", own, must=[(True, None)])
        reserved.append(torch.cuda.memory_reserved())
    grown = (reserved[1] - reserved[0]) / _MIB
    yield limit("memory that stays reserved for that", grown, most=8, unit="MiB")
    yield expect("bytes more of it after the second", reserved[2] - reserved[1], must=0)


def devices(device: Device) -> Iterator[Finding]:
    """NVML's figures of this device come as rows, and mfu is a share."""
    recorded = Recorded()
    device.begin()
    step: Any = gpt(device)
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    yield from _asked_to_compute(device, recorded)
    mfu = [row["mfu"] for row in recorded.rows("steps")[2:18]]
    told = [value for value in mfu if value is not None]
    yield expect("mfu is between 0 and 1", bool(told) and all(0 < v < 1 for v in told), must=True)
    if recorded.training.accelerator.device_totals(fresh=True) is None:
        yield left_out("python.devices", "; ".join(recorded.training.accelerator.notes()))
        return
    wait_for(lambda: len(recorded.rows("devices")) >= 2)
    row = recorded.rows("devices")[-1]
    free, total = torch.cuda.mem_get_info()
    off = abs(row["used_bytes"] - (total - free)) / total
    yield limit("used_bytes off mem_get_info by", off * 100, most=2, unit="% of all")
    for name in _TOLD:
        yield seen(name, row[name])
