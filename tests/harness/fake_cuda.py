"""A made-up CUDA below torch, for machines without one: it behaves as CUDA does.

`fake_torch` puts it into a torch that was built without CUDA. Work takes time on queues that finish
later, by a clock that the test moves. What CUDA refuses is refused, and all that is asked of it is
in a log:

- an event belongs to the device of the queue in which it was first recorded;
- while a graph is captured in the usual mode, no thread may ask an event, take memory or wait:
  who does breaks the capture;
- the current device is each thread's own; to choose one, and to make an event on one, makes a
  context there;
- what was made here is destroyed here: in another process that ends the process;
- `elapsed_time` of events that the device has not come to is an error;
- an allocator may have no statistics, no history and no observers.

It is no device: it computes nothing, and says nothing of how long anything takes on one.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

TOTAL = 141 << 30
ALLOCATORS = ("native", "cudaMallocAsync", "pluggable")
_WAITS = frozenset({"synchronize", "item", "tolist", "cpu", "bool", "float", "int", "empty_cache"})
_BANNED = frozenset({*_WAITS, "event_query", "event_create", "host_alloc", "mem_get_info"})
"""What breaks a capture in the usual mode, from whichever thread."""


class Entry(NamedTuple):
    """One call, in the log."""

    name: str
    thread: str
    is_captured: bool
    device: int | None


class FakeError(RuntimeError):
    """As torch.AcceleratorError."""


class _Item:
    """Something in a queue."""

    def __init__(self, seconds: float, then: Callable[[float], None] | None) -> None:
        self.left = seconds
        self.then = then


class Timeline:
    """One queue of a device."""

    def __init__(self, cuda: FakeCuda, device: int, number: int) -> None:
        self._cuda = cuda
        self.device, self.number = device, number
        self.items: deque[_Item] = deque()

    def push(self, seconds: float, then: Callable[[float], None] | None = None) -> None:
        """Queue some work; what takes no time behind nothing is done at once."""
        capture = self._cuda.capture
        if capture is not None and capture.timeline is self:
            capture.graph.work.append(seconds)
            return
        self.items.append(_Item(seconds, then))
        self.run(0.0)

    def run(self, seconds: float) -> None:
        """Let it do what it can in that time."""
        now = self._cuda.now
        while self.items and self.items[0].left <= seconds:
            item = self.items.popleft()
            seconds -= item.left
            now += item.left
            if item.then is not None:
                item.then(now)
        if self.items:
            self.items[0].left -= seconds

    def is_idle(self) -> bool:
        """Whether all is done."""
        return not self.items


class Capture(NamedTuple):
    """A capture under way."""

    graph: Any
    timeline: Timeline
    thread: int
    mode: str


class FakeCuda:
    """The devices of one process.

    Attributes:
        now: What the clock of all devices says, in seconds.
        log: Every call, in order.
        contexts: The devices that have one.
        home: The device on which all tensors lie.
        kind: What torch calls its devices: ``cuda`` or ``xpu``, which tells less of itself.
        is_broken: Whether somebody has broken a capture.
        is_faulty: Whether it computes wrongly.
        is_expandable: Whether the allocator's one segment can grow.
        pinned: Pieces and bytes of the host's memory that it can write to, those in use and all.
        forgets_frees: Whether pieces that are given back count as in use, as before torch 2.13.
        refuses_waits: Whether to wait for the device is an error.
    """

    def __init__(
        self, *, devices: int = 2, home: int = 0, allocator: str = "native", kind: str = "cuda"
    ) -> None:
        assert allocator in ALLOCATORS
        self.kind = kind
        self.devices, self.home, self.allocator = devices, home, allocator
        self.now = 0.0
        self.log: list[Entry] = []
        self.contexts: set[int] = set()
        self.capture: Capture | None = None
        self.is_broken = False
        self.is_on = False
        self.refuses_waits = False
        self.observers: list[Any] = []
        self.history: int | None = None
        self.allocated, self.reserved = 1 << 20, 2 << 20
        self.is_expandable = self.is_faulty = False
        self.pinned: Counter[str] = Counter()
        self.forgets_frees = False
        self._unpinned: Counter[int] = Counter()
        self._pid = os.getpid()
        self.timelines: dict[tuple[int, int], Timeline] = {}
        self.thread = threading.local()

    def start(self) -> None:
        """The program uses CUDA from now on; its tensors lie there."""
        self.is_on = True
        self.contexts.add(self.home)

    def work(self, seconds: float, device: int | None = None) -> None:
        """The program launches a kernel that takes so long, which may be for ever."""
        device = self.home if device is None else device
        self.contexts.add(device)
        self.current(device).push(seconds)

    def advance(self, seconds: float) -> None:
        """Time goes by."""
        for timeline in list(self.timelines.values()):
            timeline.run(seconds)
        self.now += seconds

    def finish(self) -> None:
        """All that ends comes to its end."""
        self.advance(1e6)

    def pin(self, size: int) -> Owner:
        """Take memory of the host's; what is given back stays with the allocator."""
        size = 1 << max(0, size - 1).bit_length()
        self.pinned.update(pieces=1, bytes=size)
        if self._unpinned[size]:
            self._unpinned[size] -= 1
        else:
            self.pinned.update(all_pieces=1, all_bytes=size)
        return Owner(lambda: self._give_back(size))

    def _give_back(self, size: int) -> None:
        """A piece can be handed out again."""
        self._unpinned[size] += 1
        if not self.forgets_frees:
            self.pinned.subtract({"pieces": 1, "bytes": size})

    def segments(self) -> list[dict[str, Any]]:
        """What the allocator has reserved, as torch's snapshots have it."""
        free = self.reserved - self.allocated
        used = {"size": self.allocated, "state": "active_allocated"}
        rest = {"size": free, "state": "inactive", "requested_size": 0}
        return [
            {
                "device": self.home,
                "address": 1 << 40,
                "total_size": self.reserved,
                "allocated_size": self.allocated,
                "active_size": self.allocated,
                "requested_size": self.allocated,
                "stream": 0,
                "segment_type": "small",
                "segment_pool_id": (0, 0),
                "is_expandable": self.is_expandable,
                "frames": [],
                "blocks": [{**used, "requested_size": self.allocated}, rest],
            }
        ]

    def abort(self) -> None:
        """Whatever is queued is over, done or not."""
        for timeline in list(self.timelines.values()):
            while timeline.items:
                item = timeline.items.popleft()
                if item.then is not None:
                    item.then(self.now)

    def calls(self, *names: str) -> int:
        """How often something was called."""
        return sum(entry.name in names for entry in self.log)

    def counts(self) -> Counter[str]:
        """How often everything was."""
        return Counter(entry.name for entry in self.log)

    def waits(self) -> list[Entry]:
        """Every call that waited for a device."""
        return [entry for entry in self.log if entry.name in _WAITS]

    def in_captures(self) -> list[Entry]:
        """Every call that came while a graph was captured."""
        return [entry for entry in self.log if entry.is_captured]

    def current(self, device: int | None = None) -> Timeline:
        """This thread's queue of a device."""
        device = self.device_here() if device is None else device
        chosen: dict[int, Timeline] = self.thread.__dict__.setdefault("queues", {})
        return chosen.get(device) or self.timeline(device, 0)

    def timeline(self, device: int, number: int) -> Timeline:
        """A queue by its number."""
        key = device, number
        if key not in self.timelines:
            self.timelines[key] = Timeline(self, device, number)
        return self.timelines[key]

    def device_here(self) -> int:
        """This thread's device; every thread begins with the first."""
        return int(self.thread.__dict__.get("device", 0))

    def note(self, name: str, device: int | None = None) -> None:
        """Write down a call, and refuse what a capture forbids."""
        self.check_process(name)
        if self.refuses_waits and name in _WAITS:
            raise FakeError("called a synchronizing CUDA operation")
        capture = self.capture
        self.log.append(Entry(name, threading.current_thread().name, capture is not None, device))
        if capture is None or name not in _BANNED:
            return
        if capture.mode == "global" or capture.thread == threading.get_ident():
            self.is_broken = True
            raise FakeError("CUDA error: operation not permitted when stream is capturing")

    def check_process(self, what: str) -> None:
        """In a forked child there is no CUDA."""
        if os.getpid() != self._pid:
            raise FakeError(f"CUDA error: initialization error ({what} in a forked child)")

    def is_mine(self) -> bool:
        """Whether this is the process that it was made in."""
        return os.getpid() == self._pid


class Owner:
    """Goes with something that CUDA made."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self._pid = os.getpid()
        self._then = then

    def __del__(self) -> None:
        if os.getpid() != self._pid:
            os.abort()
        self._then()


class NvmlError(Exception):
    """As pynvml's."""


class FakeNvml:
    """Stands in for pynvml; see `fake_nvml`."""

    NVMLError = NvmlError

    def __init__(self, devices: dict[str, dict[str, Any]], xids: list[int]) -> None:
        self._devices, self._xids = devices, xids

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        what = name.removeprefix("nvmlDeviceGet")

        def ask(handle: str, *args: Any) -> Any:
            if what not in self._devices[handle]:
                raise NvmlError("Not Supported")
            found = self._devices[handle][what]
            return found(*args) if callable(found) else found

        return ask

    def nvmlInit(self) -> None:  # noqa: N802 - as in pynvml
        """It is there."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - the same
        """The device of that name."""
        if uuid not in self._devices:
            raise NvmlError("Not Found")
        return uuid

    def nvmlEventSetCreate(self) -> list[int]:  # noqa: N802 - the same
        """What errors come in."""
        return []

    def nvmlDeviceRegisterEvents(  # noqa: N802 - the same
        self, handle: str, kinds: int, events: list[int]
    ) -> None:
        """Have the errors come there."""
        events += self._xids

    def nvmlEventSetWait_v2(self, events: list[int], timeout_ms: int) -> Any:  # noqa: N802
        """The next of them."""
        if not events:
            raise NvmlError("Timeout")
        return SimpleNamespace(eventData=events.pop(0))


def fake_nvml(devices: dict[str, dict[str, Any]], xids: Iterable[int] = ()) -> Any:
    """A stand-in for pynvml that knows some devices by UUID, and what each has to tell.

    Args:
        devices: By what comes behind ``nvmlDeviceGet``; functions get what comes behind the handle.
        xids: Errors that the driver has told of.
    """
    return FakeNvml(devices, list(xids))
