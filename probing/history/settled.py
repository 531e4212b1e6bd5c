"""Which rows of a live process will not change any more.

A row may be completed a second time, when a number has come from a device or a step has ended (see
`probing.ring.writer`), and one in the history is never written again. So a row is exported once it
is complete and the training some steps and seconds past it, and every row once the process has
ended. Rules of this file: pure.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..messages.frozen import dataclass
from ..ring.format import NULL_INT, OPEN
from ..ring.reader import RingSnapshot
from .books import Numbers

_STEPS = 8
"""How far a training is past a step that is over and has all its numbers."""
_NS = 5_000_000_000
"""How old a row is, beside that: some tables have no step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a process is looked at.

    Attributes:
        has_ended: Whether it had ended before its rings were read.
        last_step: Its newest step; None before the first.
        now_ns: Now, since the epoch.
        monotonic_ns: Now, by the clock of its rings, which nobody sets; None where that is another
            machine's.
    """

    has_ended: bool
    last_step: int | None
    now_ns: int
    monotonic_ns: int | None


def are_settled(snapshot: RingSnapshot, moment: Moment) -> npt.NDArray[np.bool_]:
    """Which rows of a ring are as they will stay."""
    rows = snapshot.rows
    if moment.has_ended:
        return np.ones(len(rows), np.bool_)
    found: npt.NDArray[np.bool_] = rows.states != OPEN
    at = times_of(snapshot)
    now_ns = moment.monotonic_ns
    if now_ns is None:
        now_ns = moment.now_ns - snapshot.header.clock_offset_ns
    found &= (at == NULL_INT) | (at <= now_ns - _NS)
    counts_steps = "step" in rows.columns and not snapshot.header.origin  # that may be the script's
    if counts_steps and moment.last_step is not None:
        steps = rows["step"].astype(np.int64)
        found &= (steps == NULL_INT) | (steps <= moment.last_step - _STEPS)
    return found


def times_of(snapshot: RingSnapshot) -> Numbers:
    """When each row began or was measured, by the clock of the ring; NULL where it has no time."""
    field = next((f for f in snapshot.header.fields if f.type == "time"), None)
    if field is None:
        return np.full(len(snapshot.rows), NULL_INT, np.int64)
    times: Numbers = snapshot.rows[field.name].astype(np.int64, copy=False)
    return times
