"""The device of a check: CUDA's first one, or a made-up one.

Rules of this file: what a check does to the device goes by torch's own functions, which the made-up
one has, too; here is only what the two are asked for differently.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Protocol

import torch

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
MAKINGS = ("cudaMalloc", "cudaHostAlloc", "cudaEventCreateWithFlags")
_CYCLES = 10_000_000


class Device(Protocol):
    """What checks ask for.

    Attributes:
        is_fake: Whether it is made up.
        here: As torch names it.
    """

    is_fake: bool
    here: torch.device

    def begin(self) -> None:
        """Use it."""

    def sleep(self, seconds: float) -> None:
        """Keep it busy for so long."""

    def launched(self, seconds: float) -> None:
        """The training has launched something that takes about so long there."""

    def tick(self, seconds: float) -> None:
        """The host has done something that took so long."""

    def calls(self) -> contextlib.AbstractContextManager[Counter[str]]:
        """How often functions of CUDA's are called meanwhile; known at the end."""


class RealDevice:
    """See `Device`."""

    is_fake = False
    here = torch.device("cuda", 0)

    def __init__(self) -> None:
        self._cycles_per_s = 0.0

    def begin(self) -> None:
        """Measure its clock."""
        torch.zeros(1, device=self.here)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_CYCLES)
        first.record()
        torch.cuda._sleep(_CYCLES)
        last.record()
        torch.cuda.synchronize()
        self._cycles_per_s = _CYCLES / (first.elapsed_time(last) * 1e-3)

    def sleep(self, seconds: float) -> None:
        """A kernel that counts cycles."""
        torch.cuda._sleep(int(seconds * self._cycles_per_s))

    def launched(self, seconds: float) -> None:
        """It has been."""

    def tick(self, seconds: float) -> None:
        """Time goes by itself."""

    @contextlib.contextmanager
    def calls(self) -> Iterator[Counter[str]]:
        """By torch's profiler, its own calls included."""
        found: Counter[str] = Counter()
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as profiler:
            yield found
        for row in profiler.key_averages():
            if row.key in {*WAITS, *MAKINGS}:
                found[row.key] += row.count


class FakeDevice:
    """See `Device`."""

    is_fake = True
    here = torch.device("cuda", 0)

    def __init__(self) -> None:
        from tests.harness.fake_cuda import TOTAL, FakeCuda, fake_nvml
        from tests.harness.fake_torch import install

        self.cuda = install(FakeCuda(devices=2, home=0))
        memory = SimpleNamespace(used=self.cuda.reserved, total=TOTAL)
        told = {"MemoryInfo": memory, "PcieThroughput": lambda counter: 1_000}
        sys.modules["pynvml"] = fake_nvml({"GPU-fake-0": told})

    def begin(self) -> None:
        """It is used from now on."""
        self.cuda.start()

    def sleep(self, seconds: float) -> None:
        """It has work."""
        self.cuda.work(seconds)

    def launched(self, seconds: float) -> None:
        """It has that work."""
        self.cuda.work(seconds)

    def tick(self, seconds: float) -> None:
        """Its clock moves by the test."""
        self.cuda.advance(seconds)

    @contextlib.contextmanager
    def calls(self) -> Iterator[Counter[str]]:
        """By its log."""
        found: Counter[str] = Counter()
        before = self.cuda.counts()
        yield found
        made = self.cuda.counts() - before
        found["cudaStreamSynchronize"] = sum(made[n] for n in ("item", "tolist", "cpu", "bool"))
        found["cudaDeviceSynchronize"] = made["synchronize"]
        found["cudaHostAlloc"] = made["host_alloc"]
        found["cudaEventCreateWithFlags"] = made["event_create"]


def device_of(*, is_fake: bool) -> Device:
    """The one that a check runs on."""
    return FakeDevice() if is_fake else RealDevice()
