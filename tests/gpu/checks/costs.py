"""What recording costs, and whether anything grows."""

from __future__ import annotations

import gc
import gzip
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from probing.agent.on_demand.profiling import Profiles
from probing.messages.common import ProfileRequest
from probing.profiling import Trace, read_trace, summarize
from tests.benchmarks.measures import bootstrap_median, slowdowns
from tests.gpu.devices import Device
from tests.gpu.findings import Finding, expect, left_out, limit, seen
from tests.gpu.trainings import Recorded, Small, gpt, wait_for

_MUST = 1.0
_MIB = 1 << 20
_GZIP = b"\x1f\x8b"


def cost(device: Device) -> Iterator[Finding]:
    """Steps recorded and not, in turn: of a GPT in bfloat16, and of what the host is slow with."""
    recorded = Recorded()
    device.begin()
    yield from _compared(device, recorded, "GPT, eager", gpt(device), steps=20, pairs=8)
    tiny = Small(device, width=32, depth=24)
    yield from _compared(device, recorded, "bound by the host", tiny.step, steps=60, pairs=8)
    yield expect("problems of the record", recorded.problems(), must=[])


def compiled(device: Device) -> Iterator[Finding]:
    """The same of a compiled GPT; without a made-up CUDA, whose tensors dynamo cannot trace."""
    recorded = Recorded()
    if device.is_fake:
        torch.cuda.is_available = lambda: False  # dynamo asks what is there, which begins its use
    else:
        device.begin()
    step: Any = gpt(device)
    step.model.compile(backend="eager" if device.is_fake else "inductor")
    yield from _compared(device, recorded, "GPT, compiled", step, steps=20, pairs=6)
    yield expect("problems of the record", recorded.problems(), must=[])


def _compared(
    device: Device,
    recorded: Recorded,
    what: str,
    step: Callable[[], None],
    *,
    steps: int,
    pairs: int,
) -> Iterator[Finding]:
    """Blocks of steps in pairs, every other of them the other way round."""
    if device.is_fake:
        steps, pairs = 2, 2
    for _ in range(4 if device.is_fake else 40):
        step()
    took: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs):
        for is_recorded in (pair % 2 == 0, pair % 2 == 1):
            if is_recorded:
                recorded.go_on()
            else:
                recorded.pause()
            for _ in range(2 if device.is_fake else 17):  # in which it is planned what is recorded
                step()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
            took[is_recorded].append(time.perf_counter() - begin)
    recorded.go_on()
    for source, told in _by_source(recorded):
        yield seen(f"{what}: {source}", told)
    values = slowdowns(took[True], took[False])
    low, high = bootstrap_median(values)
    yield seen(f"{what}: a step", f"{statistics.median(took[False]) / steps * 1e3:.3g} ms")
    if device.is_fake:
        yield seen(f"{what}: slowdown", "not measured on a made-up CUDA")
        return
    yield seen(f"{what}: 95 % of the median", f"{low:.2f} .. {high:.2f} %")
    yield limit(f"{what}: slowdown", statistics.median(values), most=_MUST, unit="%")


def _by_source(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """What each source costs a step by its own clock, and whose passes are on record."""
    for each in recorded.training.source_reports():
        if each.cost_s:
            yield f"{each.source}, by its clock", f"{each.cost_s * 1e6:.0f} us"
        if each.source == "backward":
            yield "backward, on record", str(each.note)


def profile(device: Device) -> Iterator[Finding]:
    """A profile of a step in the middle of a training: it ends, and the training goes on."""
    recorded = Recorded()
    device.begin()
    training = Small(device)
    training.steps(5)
    profiles = Profiles(lambda: recorded.training, recorded.agent.folder)
    profiling = profiles.submit(ProfileRequest(steps=1, timeout_s=60.0))
    _train_until(training, profiling.future.done, 60)
    path = profiling.future.result(0)
    yield expect("a trace was written", path.stat().st_size > 0, must=True)
    yield from _kernels(device, read_trace(_unpacked(path.read_bytes())))
    training.steps(5)
    yield from _beside(device, training, profiles)
    yield expect("problems of the record", recorded.problems(), must=[])
    profiles.close()


def _beside(device: Device, training: Small, profiles: Profiles) -> Iterator[Finding]:
    """Ours is refused while the program's profiler runs, and makes way when that begins."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if not device.is_fake:
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    for what, steps_before in (("begun before ours", 0), ("begun while ours runs", 3)):
        theirs = torch.profiler.profile(activities=kinds)
        if not steps_before:
            theirs.start()
        wait_for(lambda: profiles.job is None or profiles.job.is_over())
        ours = profiles.submit(ProfileRequest(steps=1000, timeout_s=60.0))
        if steps_before:
            _train_until(training, lambda: profiles.progress().state == "running")
            theirs.start()
        training.steps(3)
        theirs.stop()
        _train_until(training, ours.future.done)
        refused = ours.future.exception(10)
        yield expect(
            f"ours beside a profiler {what}", type(refused).__name__, must="ProfileRefused"
        )
        named = {row.key for row in theirs.key_averages()}
        yield expect(f"a profiler {what} has operators", "aten::linear" in named, must=True)
        if not device.is_fake:
            launches = any("LaunchKernel" in name for name in named)
            yield expect(f"a profiler {what} has launches", launches, must=True)


def _train_until(training: Small, fact: Callable[[], bool], seconds: float = 30.0) -> None:
    """Steps until something is so."""
    end = time.monotonic() + seconds
    while not fact() and time.monotonic() < end:
        training.steps(1)


def _kernels(device: Device, trace: Trace) -> Iterator[Finding]:
    """Each kernel is known by the operator that launched it, and by its launch."""
    yield expect("operators in it", bool(trace.ops), must=True)
    if device.is_fake:
        yield left_out("kernels in it", "the made-up CUDA has none that torch would see")
        return
    kernels = [kernel for kernel in trace.kernels if kernel.kind == "kernel"]
    alone = sum(kernel.parent is None for kernel in kernels)
    yield expect("kernels in it", bool(kernels), must=True)
    yield limit("those whose operator is not known", 100 * alone / max(1, len(kernels)), most=5,
                unit="%")  # fmt: skip
    missing = len(kernels) - len(trace.delays_ns)
    yield limit("those whose launch is not known", 100 * missing / max(1, len(kernels)), most=5,
                unit="%")  # fmt: skip
    yield seen("launches, delays and queues", summarize(trace).queues)


def _unpacked(data: bytes) -> bytes:
    """What may be gzipped."""
    return gzip.decompress(data) if data[:2] == _GZIP else data


def soak(device: Device) -> Iterator[Finding]:
    """Nothing grows while a training goes on."""
    recorded = Recorded()
    device.begin()
    training = Small(device)
    seconds = 2 if device.is_fake else 30
    _train_for(training, seconds / 4)
    before = _held()
    with device.calls() as calls:
        training.steps(50)
    _train_for(training, seconds)
    after = _held()
    yield limit("resident memory grew by", (after[0] - before[0]) / _MIB, most=8, unit="MiB")
    yield expect("descriptors came", after[1] - before[1], must=0)
    yield expect("events and pinned memory were made", calls["cudaHostAlloc"], must=0)
    yield expect("problems of the record", recorded.problems(), must=[])


def _train_for(training: Small, seconds: float) -> None:
    """Steps for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        training.steps(10)
        training.losses.clear()
        torch.cuda.synchronize()


def _held() -> tuple[int, int]:
    """The resident set, and the open descriptors."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))
