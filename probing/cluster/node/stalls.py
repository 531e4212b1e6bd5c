"""Watches every process of the machine for stalls, from its files alone.

Rules of this file: the clock is a parameter, and `look` is called again and again by whoever has a
thread for it. A stall is a row of `probing.stalls` in the run folder of the process, so that it is
asked as any other table, there and from afar, and outlives both.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence

from ...errors import RingError
from ...linux import process
from ...messages.frozen import dataclass
from ...ring.peek import RingPeek, newest_row
from ...rundir.folders import ProcessFolder
from ...safety.guard import try_each
from ...tables import STALL_STATES
from .stall_record import StallRecord, first_progress_ns

LEAST_S = 10.0
FIRST_S = 60.0
TIMES_MEDIAN = 5.0
_STEPS = 32
_WATCHED = ("steps", "collectives", "torch_trace")
_STATES = {"R": "running", "S": "waiting", "T": "stopped", "t": "stopped", "D": "blocked"}

Sign = tuple[tuple[int, int], ...]
"""Of each watched table the newest row's number and whether it was open: it changes with any
progress."""


@dataclass(slots=True, kw_only=True)
class _Watched:
    """What is known of one process.

    Attributes:
        since: When its sign last changed, by the clock.
        word: The open row of the stall that it is in.
    """

    sign: Sign
    since: float
    since_ns: int
    record: StallRecord
    word: int | None = None


class StallWatch:
    """Notices who stalls and who goes on.

    What a node server before this one has written is kept, and a stall that it saw begin goes on.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Watched] = {}

    def look(self, folders: Sequence[ProcessFolder]) -> list[str]:
        """Look at the processes that run; those not among them are forgotten.

        Returns:
            What failed, which keeps no other process from being looked at.
        """
        gone = self._known.keys() - {folder.path.name for folder in folders}
        looks = [functools.partial(self._look_at, folder) for folder in folders]
        return try_each((*looks, *(functools.partial(self._forget, name) for name in gone)))

    def _forget(self, name: str) -> None:
        self._known.pop(name).record.close()

    def stalled_s(self, key: str) -> float | None:
        """For how long a process has stalled; None where it has not."""
        known = self._known.get(key)
        return None if known is None or known.word is None else self._clock() - known.since

    def close(self) -> None:
        """Let go of all files; what is in them stays."""
        for known in self._known.values():
            known.record.close()
        self._known.clear()

    def _look_at(self, folder: ProcessFolder) -> None:
        sign, now = sign_of(folder), self._clock()
        known = self._known.get(folder.path.name)
        if known is None:
            self._known[folder.path.name] = known = _Watched(
                sign=sign, since=now, since_ns=time.perf_counter_ns(), record=StallRecord(folder)
            )
            _take_over(folder, known)
        elif known.sign != sign:
            _end_stall(known)
            known.sign, known.since, known.since_ns = sign, now, time.perf_counter_ns()
        elif known.word is None and not _is_recording(folder):
            known.since, known.since_ns = now, time.perf_counter_ns()
        elif known.word is None and any(number for number, _ in sign):
            usual_s = usual_step_s(folder)
            limit_s = stall_limit_s(usual_s)
            if now - known.since > limit_s:
                _begin_stall(folder, known, limit_s, usual_s)


def stall_limit_s(usual_s: float | None) -> float:
    """After how long without progress a process stalls, by the median of its steps."""
    return FIRST_S if usual_s is None else max(LEAST_S, TIMES_MEDIAN * usual_s)


def sign_of(folder: ProcessFolder) -> Sign:
    """How far a process has come."""
    found = []
    for table in _WATCHED:
        row = newest_row(folder, table)
        found.append((0, 0) if row is None else (row.seq, row.state))
    return tuple(found)


def usual_step_s(folder: ProcessFolder) -> float | None:
    """The median of the last steps; None before the third."""
    try:
        with RingPeek(folder.ring("steps")) as ring:
            taken = [row.values.get("duration_ns") for row in ring.newest(_STEPS + 1)]
    except (OSError, RingError):
        return None
    whole = [value for value in taken if value is not None]
    return statistics.median(whole) * 1e-9 if len(whole) > 1 else None


def _is_recording(folder: ProcessFolder) -> bool:
    """Whether a record that stands still says anything of the process."""
    card = folder.read_card()
    return card is None or card.is_recording


def _begin_stall(
    folder: ProcessFolder, known: _Watched, limit_s: float, usual_s: float | None
) -> None:
    """Write the row of a stall that has been noticed."""
    row = newest_row(folder, "steps")
    letter = process.state(folder.pid) or "S"
    values = {
        "step": int(row.values["step"] or 0) if row else 0,
        "limit_s": limit_s,
        "usual_s": usual_s,
        "state": STALL_STATES.index(_STATES.get(letter, "waiting")),
        "start_ns": known.since_ns,
    }
    known.word = known.record.begin(values)


def _end_stall(known: _Watched) -> None:
    """Complete the row of a stall that is over."""
    if known.word is not None:
        known.record.end(known.word, time.perf_counter_ns() - known.since_ns)
    known.word = None


def _take_over(folder: ProcessFolder, known: _Watched) -> None:
    """Go on with a stall that an earlier node server saw begin, or say when it ended."""
    standing = known.record.take_over()
    if standing is None:
        return
    progress_ns = first_progress_ns(map(folder.ring, _WATCHED), standing.start_ns)
    if progress_ns is not None:
        known.record.end(standing.word, progress_ns - standing.start_ns)
        return
    known.since -= (known.since_ns - standing.start_ns) * 1e-9
    known.since_ns, known.word = standing.start_ns, standing.word
