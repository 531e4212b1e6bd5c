"""Looks at the device from a thread of the agent's own, about once a second.

Rules of this file: begins with the first step in which a device is in use. Nothing is asked in the
training thread, since the driver may keep who asks waiting. While the training stands still, what
its device has done meanwhile is looked at, too: nobody else would, and a collective that
the device has long been past would look like one that hangs.
"""

from __future__ import annotations

import time

from ....ring.format import DONE, NULL_FLOAT, NULL_INT, NULL_NAME
from ....ring.writer import RingWriter
from ....rundir.folders import ProcessFolder
from ....safety import forks
from ....tables import DEVICES
from ..accelerator import Accelerator, DeviceSample, captures
from ..regular_looks import RegularLooks
from ..shared.recording import Recording
from .sampler import MemorySampler

_INTERVAL_S = 1.0
_STILL_NS = 1_000_000_000
_ROWS = 4096
_MAKING_S = 1.0


class DeviceWatch(RegularLooks):
    """The source `devices`."""

    def __init__(
        self,
        recording: Recording,
        folder: ProcessFolder,
        accelerator: Accelerator,
        memory: MemorySampler,
        *,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        """Begin without looking.

        Args:
            memory: Knows when the training has moved last.
        """
        super().__init__("devices", "device")
        self._recording = recording
        self._folder = folder
        self._accelerator = accelerator
        self._memory = memory
        self._interval_s = interval_s
        self._ring: RingWriter | None = None

    def start(self) -> None:
        """Look as soon as a device is in use."""
        self.is_on = True

    def used(self) -> None:
        """A device is in use: look from now on."""
        if self.is_on:
            self._begin(self._interval_s, first_s=0.0)

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def note(self) -> str | None:
        """What `status` says of it beside its state."""
        return "no accelerator is in use" if self._thread is None else None

    def _look(self) -> None:
        self._see_collectives()
        sample = self._accelerator.device_sample()
        if sample is not None:
            self._write(sample)

    def _see_collectives(self) -> None:
        """See what the device has come past while nobody else looks."""
        collectives = self._recording.collectives
        is_still = time.perf_counter_ns() - self._memory.taken_ns > _STILL_NS
        if collectives is not None and is_still:
            with captures.quiet() as may_ask:
                if may_ask:
                    collectives.rows.poll(time.perf_counter_ns())

    def _write(self, sample: DeviceSample) -> None:
        ring = self._ring
        if ring is None:
            with forks.held_back(timeout_s=_MAKING_S):  # else a child would keep it
                ring = self._ring = RingWriter(self._folder.ring(DEVICES.name), DEVICES, _ROWS)
        intern = self._recording.names.intern
        texts = (sample.device, sample.uuid)
        throttled = intern(sample.throttled) if sample.throttled else NULL_NAME
        values: dict[str, object] = {
            "throttled": throttled,
            "used_bytes": sample.totals.used_bytes,
            "total_bytes": sample.totals.total_bytes,
        }
        for name in _FRACTIONS:
            told = getattr(sample, name)
            values[name] = NULL_FLOAT if told is None else float(told)
        for name in _COUNTS:
            told = getattr(sample, name)
            values[name] = NULL_INT if told is None else int(told)
        step = self._recording.step
        word = ring.open_row(time.perf_counter_ns(), step, *(intern(text) for text in texts))
        ring.close_named(word, DONE, values)


_FRACTIONS = (
    "busy",
    "memory_busy",
    "power_w",
    "power_limit_w",
    "pcie_sent_bytes_per_s",
    "pcie_received_bytes_per_s",
    "nvlink_sent_bytes_per_s",
    "nvlink_received_bytes_per_s",
)
_COUNTS = (
    "own_bytes",
    "processes",
    "sm_mhz",
    "memory_mhz",
    "temperature_c",
    "ecc_errors",
    "remapped_rows",
    "xid",
)
