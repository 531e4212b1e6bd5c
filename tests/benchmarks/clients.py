"""How much slower the GPT trains while clients keep asking it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from probing.errors import ProbingError
from probing.messages import common as wire
from probing.reach.address import Address
from probing.reach.endpoint import Local, resolve
from probing.reach.transport import ask
from probing.rundir.folders import RunDirectory

from .measures import Measure, rounds_for, scaled, slowdowns
from .processes import read_line, start_program, temporary_home

_SQL = "SELECT module, avg(duration) FROM python.torch_trace GROUP BY ALL"
_CLIENTS = 8
_PERIOD_S = 0.1
_WINDOW_S = 10.0
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the training: seconds per step, and the agent's share of a core."""

    step_s: float
    agents_share: float


def measure(effort: float) -> Iterator[Measure]:
    """Once with a core for the clients and the SQL worker, once all on the training's core."""
    cores = sorted(os.sched_getaffinity(0))
    window_s = _WINDOW_S * min(1.0, max(0.3, effort))
    for core, must, aim in ((cores[-1], 3.0, 1.0), (cores[0], 10.0, 5.0)):
        spare = "a core to spare" if core != cores[0] else "no core to spare"
        clients = _Clients()
        with temporary_home() as home, _pinned(core):
            off, on = _run(home, cores[0], clients, rounds_for(4, effort), window_s)
        share = 100 * statistics.median(window.agents_share for window in on)
        yield Measure(
            what=f"training slowdown, {_CLIENTS} clients at 10 Hz, {spare}",
            unit="%",
            values=slowdowns([w.step_s for w in on], [w.step_s for w in off]),
            must=must,
            aim=aim,
            note=f"{clients.rate():.0f} answers a second, {clients.failed} refused;"
            f" the agent's own threads took {share:.1f} % of a core",
        )
        yield Measure(
            what=f"answer to a client, {spare}", unit="ms", values=scaled(clients.seconds, 1e3)
        )


class _Clients:
    """Clients that ask the same question again and again, each on a thread of its own."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed = 0
        self._active_s = 0.0

    def rate(self) -> float:
        """Answers per second while they were asking."""
        return len(self.seconds) / self._active_s

    @contextlib.contextmanager
    def asking(self, address: Address) -> Iterator[None]:
        """Have them ask meanwhile."""
        over = threading.Event()
        asked = (address, over)
        threads = [threading.Thread(target=self._ask, args=asked) for _ in range(_CLIENTS)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
            self._active_s += time.monotonic() - started

    def _ask(self, address: Address, over: threading.Event) -> None:
        """Ask once per period, or as soon as the last answer is there if that takes longer."""
        body = wire.QueryRequest(sql=_SQL)
        while not over.is_set():
            started = time.monotonic()
            try:
                ask(address, "query", body=body, timeout_s=60.0)
                self.seconds.append(time.monotonic() - started)
            except ProbingError:
                self.failed += 1
            over.wait(max(0.0, started + _PERIOD_S - time.monotonic()))


@contextlib.contextmanager
def _pinned(core: int) -> Iterator[None]:
    """Keep this thread, and all that it starts, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _run(
    home: Path, core: int, clients: _Clients, pairs: int, window_s: float
) -> tuple[list[Window], list[Window]]:
    """Train without and with clients in turn; returns the windows without and with."""
    spans: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with start_program("gpt_loop", home, core=core) as training:
        try:
            if read_line(training) != "ready":
                raise RuntimeError("the training did not start")
            place = resolve(training.pid, RunDirectory(home))
            assert isinstance(place, Local), f"it has no run folder: {place}"
            address = Address(path=place.folder.socket)
            with _Clients().asking(address):
                time.sleep(_SETTLE_S)  # the SQL worker starts
            for number in range(2 * pairs):
                asking = number % 4 in (1, 2)  # without, with, with, without
                with clients.asking(address) if asking else contextlib.nullcontext():
                    time.sleep(_SETTLE_S)
                    started = time.perf_counter()
                    time.sleep(window_s)
                    spans[asking].append((started, time.perf_counter()))
            log = json.loads(training.communicate()[0].splitlines()[-1])
        finally:
            training.kill()
    off, on = ([window_of(log, *span) for span in spans[which]] for which in (False, True))
    return off, on


def window_of(log: dict[str, list[float]], start: float, end: float) -> Window:
    """The means over the whole steps within a span; over those that reach into it where none is.

    Args:
        log: What `gpt_loop` prints; its first moment is before the span, its last one behind.
    """
    ends = log["ends"]
    first, last = bisect_left(ends, start), bisect_right(ends, end) - 1
    if first >= last:  # steps are long on a machine that is shared
        first, last = bisect_right(ends, start) - 1, bisect_left(ends, end)
    seconds = ends[last] - ends[first]
    share = (log["agents"][last] - log["agents"][first]) / seconds
    return Window(seconds / (last - first), share)
