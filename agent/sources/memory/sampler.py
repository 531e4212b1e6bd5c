"""How much memory the job has in use, sampled at a bounded cost.

Rules of this file: runs in the training threads; never waits for the accelerator.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ....ring.format import NULL_INT
from ....ring.native import PlainMoment, new_moment
from ..accelerator import Accelerator

_LEAST_INTERVAL_NS = 2_000_000
_MOST_INTERVAL_NS = 250_000_000
"""A training that moves has a sample not older than this, unless it is within one call."""
_SELDOM, _OFTEN, _WHILE_GROWING = 4000, 1000, 250
"""A sample may cost one part in so many of the time until the next. It costs up to 50 us: by then
the caches have forgotten what it takes."""
_GROWTH = 1 / 128
"""By how much the memory in use is beyond all that was seen where that is news; so there is such
news 90 times before it has doubled, and no more."""


class MemorySampler:
    """Keeps the newest figure at hand.

    A training that does what it did before has few samples. One that may be about to run out of
    memory is to show which modules had grown: so there are more in a step whose batch has another
    shape than the one before, or in which more is in use than ever.

    Attributes:
        now: Where the newest sample is, and when the next one is due, for whoever is in a hurry.
        has_grown: Whether more was in use in the last step than ever before.
        taken_ns: When it was taken, by the monotonic clock.
    """

    __slots__ = (
        "_accelerator",
        "_clock",
        "_cost_ns",
        "_grows",
        "_is_resident",
        "_last_ns",
        "_most",
        "_page",
        "_share",
        "_statm",
        "has_grown",
        "now",
        "taken_ns",
    )

    def __init__(
        self,
        accelerator: Accelerator,
        now: PlainMoment | None = None,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Begin without a sample.

        Args:
            now: The moment that the recording shares with it; None for one of its own.
        """
        self._accelerator = accelerator
        self._clock = clock
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self.now = now or new_moment()
        self.taken_ns = 0
        self._cost_ns = self._last_ns = 0
        self._most = 0.0
        self._share = _OFTEN
        self._grows = self.has_grown = False
        self._is_resident = True

    @property
    def bytes(self) -> int:
        """The newest sample; `NULL_INT` before the first."""
        return self.now.bytes

    @property
    def due_ns(self) -> int:
        """When the next one is due."""
        return self.now.due_ns

    def hurry(self) -> None:
        """More may soon be in use: take samples often until the step ends."""
        self._share = min(self._share, _OFTEN)
        self._plan()

    def step_ended(self, now_ns: int) -> int:
        """What was new in the step is not so in the next one.

        Returns:
            What is in use as it ends; `NULL_INT` where that is not known. An accelerator's
            allocator has several times as much in use in the midst of a step: a sample from there
            tells nothing of its end, for which the next one may come sooner.
        """
        due_ns = self.now.due_ns
        if now_ns > (due_ns if self._is_resident else (due_ns + self.taken_ns) // 2):
            self.sample()
        self._share = _SELDOM
        self.has_grown, self._grows = self._grows, False
        return self.now.bytes if self._is_resident or self.taken_ns >= now_ns else NULL_INT

    def sample(self) -> None:
        """Take a sample and plan the next one by what this one cost."""
        before, start = self._last_ns, self._clock()
        allocated = self._accelerator.allocated_bytes()
        self._is_resident = allocated is None
        in_use = self.now.bytes = self._resident() if allocated is None else allocated
        self.taken_ns = end = self._clock()
        # Of two, the lesser: another program may have had the core meanwhile.
        self._last_ns = end - start
        self._cost_ns = min(self._last_ns, before or self._last_ns)
        if in_use > self._most:
            self._most = in_use * (1 + _GROWTH)
            self._share = _WHILE_GROWING
            self._grows = True
        self._plan()

    def _plan(self) -> None:
        """Say when the next one is due."""
        interval = max(self._cost_ns * self._share, _LEAST_INTERVAL_NS)
        self.now.due_ns = self.taken_ns + min(interval, _MOST_INTERVAL_NS)

    def _resident(self) -> int:
        return int(os.pread(self._statm, 64, 0).split()[1]) * self._page

    def close(self) -> None:
        """Close the file it reads."""
        statm, self._statm = self._statm, -1  # a thread may be about to take a sample
        if statm >= 0:
            os.close(statm)
