"""The newest training steps of a process, cheap enough to be read every second.

Rules of this file: of a process of this machine its ring is read here, row by row, without an SQL
engine and without its help; any other is asked by SQL. Both give the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import RingError
from ..messages.frozen import dataclass
from ..ring.format import OPEN
from ..ring.peek import RingPeek, Row as StoredRow
from ..tables import STEP_PHASES

if TYPE_CHECKING:
    from ..rundir.folders import ProcessFolder
    from .base import Process

Row = Mapping[str, Any]

PHASES = (*STEP_PHASES[:5], "gradient_sync", *STEP_PHASES[5:])
STILL = "no step ends"
"""The state of a process that has made steps, and has made none for long, as in `listing`."""
_STILL_S, _STILL_STEPS = 10.0, 5.0
_WINDOW = 100
_SETTLING = 8
"""So many rows are read again: what a device tells of a step comes with the next ones."""
_CLOSING = (
    "loss", "grad_norm", "lr", "tokens_per_s", "samples", "device_s", "allocated_bytes",
    *(f"{phase}_s" for phase in PHASES),
)  # fmt: skip
_STORED = frozenset({"step", "start_ns", "duration_ns", *_CLOSING})
SELECT_STEPS = (  # our own columns are all that is put in
    f"SELECT seq, step, duration, {', '.join(_CLOSING)},"  # noqa: S608
    " (epoch_ns(now()) - start_ns) / 1e9 AS age_s FROM python.steps ORDER BY seq DESC LIMIT "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Where a training is and how fast.

    Attributes:
        step: The newest step on record, the one in progress among them.
        age_s: How long ago it began.
        counted: How many of the newest ended steps the figures are of.
        step_s: Their median duration.
        losses: The losses of the newest steps, from the oldest that is known; None where one is
            not known.
        first_step: The step of the first of these losses; None where there are none.
        phases: What the counted steps spent in each phase, in seconds each, together the whole.
        device_s: The median time of a step on the device; None without one.
    """

    step: int
    age_s: float
    counted: int
    step_s: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    losses: tuple[float | None, ...]
    first_step: int | None
    phases: Mapping[str, float]
    device_s: float | None


def recent_steps(process: Process, most: int, known: Sequence[Row] = ()) -> list[Row]:
    """The newest rows of python.steps, the newest first.

    Args:
        known: What an earlier look gave, which is not read again.

    Raises:
        ProbingError: They cannot be had.
    """
    if process.folder is None:
        return list(process.query(f"{SELECT_STEPS}{most}").to_pylist())
    return steps_in(process.folder, most, known)


def steps_in(folder: ProcessFolder, most: int, known: Sequence[Row] = ()) -> list[Row]:
    """The same from the ring of a process of this machine; none where it cannot be read."""
    rows = []
    is_here = folder.is_of_this_boot()
    try:
        with RingPeek(folder.ring("steps")) as ring:
            newest = ring.newest_seq()
            settled = _settled_of(ring, known)
            for seq in range(newest, max(0, newest - most), -1):
                row = settled.get(seq)
                if row is None:
                    stored = ring.row(seq, _STORED)
                    row = None if stored is None else _as_sql_gives(stored, is_of_this_boot=is_here)
                if row is not None:
                    rows.append(row)
    except (OSError, RingError):
        return []
    return rows


def _settled_of(ring: RingPeek, known: Sequence[Row]) -> dict[int, Row]:
    """Known rows that stay as they are, by number; none of a ring that was made anew since."""
    settled = known[_SETTLING:]
    stored = ring.row(settled[0]["seq"], _STORED) if settled else None
    if stored is None:
        return {}
    now = _as_sql_gives(stored, is_of_this_boot=True)
    if any(now[name] != settled[0][name] for name in ("step", "duration")):
        return {}
    return {row["seq"]: row for row in settled}


def _as_sql_gives(stored: StoredRow, *, is_of_this_boot: bool) -> Row:
    """A row with the columns of python.steps."""
    values, is_open = stored.values, stored.state == OPEN
    took_ns = None if is_open else values["duration_ns"]
    return {
        "seq": stored.seq,
        "step": values["step"],
        "duration": None if took_ns is None else took_ns * 1e-9,
        "age_s": stored.age_s(is_of_this_boot=is_of_this_boot),
        **{name: None if is_open else values.get(name) for name in _CLOSING},
    }


def pace_of(rows: Sequence[Row], *, window: int = _WINDOW) -> Pace | None:
    """Step, speed, losses and phases; None where there are no steps.

    Args:
        rows: Of python.steps, the newest first.
        window: Over how many ended steps.
    """
    if not rows:
        return None
    ended = [row for row in rows if row["duration"] is not None]
    counted = ended[:window]
    total = math.fsum(row["duration"] for row in counted)
    of_loss = [(row["step"], row["loss"]) for row in reversed(ended)]
    first = next((at for at, (_, loss) in enumerate(of_loss) if loss is not None), len(of_loss))
    of_loss = of_loss[first:]
    return Pace(
        step=rows[0]["step"],
        age_s=rows[0]["age_s"],
        counted=len(counted),
        step_s=_median([row["duration"] for row in counted]),
        tokens_per_s=_median([row["tokens_per_s"] for row in counted]),
        samples_per_s=_rate(counted, total),
        losses=tuple(loss for _, loss in of_loss),
        first_step=of_loss[0][0] if of_loss else None,
        phases=_phases(counted, total),
        device_s=_median([row["device_s"] for row in counted]),
    )


def state_with(word: str, pace: Pace | None) -> str:
    """What a process does, by the word of `probing list` and its steps."""
    if pace is None or word not in ("idle", "training", STILL):
        return word
    limit_s = max(_STILL_S, _STILL_STEPS * (pace.step_s or 0.0))
    return STILL if pace.age_s > limit_s else "training"


def last_ended(rows: Sequence[Row]) -> Row:
    """The newest row of a step that has ended; an empty one where there is none."""
    return next((row for row in rows if row["duration"] is not None), {})


def last_known(rows: Sequence[Row], column: str) -> Any:
    """What the newest ended step tells of which a column is known; None without one of late.

    A device tells it later: of the very last step it is hardly ever there.
    """
    ended = (row for row in rows[:_SETTLING] if row["duration"] is not None)
    return next((row[column] for row in ended if row[column] is not None), None)


def _phases(counted: Sequence[Row], total: float) -> dict[str, float]:
    """Seconds of a step by phase, in their order; what none of them has is `other`."""
    if not counted:
        return {}
    sums = {phase: math.fsum(row[f"{phase}_s"] or 0.0 for row in counted) for phase in PHASES}
    sums["other"] = max(0.0, total - math.fsum(s for name, s in sums.items() if name != "other"))
    return {name: seconds / len(counted) for name, seconds in sums.items() if seconds > 0}


def _rate(counted: Sequence[Row], total: float) -> float | None:
    known = [row["samples"] for row in counted if row["samples"] is not None]
    return sum(known) / total if len(known) == len(counted) and total > 0 else None


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None
