"""What is on record of one run.

Rules of this file: each table is asked once. Steps of the start are left out, and those that hold
something else than training: a checkpoint, the return from an evaluation, somebody's question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...errors import ProbingError
from ...messages.frozen import dataclass
from ...postmortem.not_finite import NotFinite, since_of
from ...tables import STEP_PHASES
from .interval import Floats

Row = Mapping[str, Any]
Query = Callable[[str], Sequence[Row]]
Name = tuple[str, str]

PHASES = (*STEP_PHASES, "gradient_sync")
WARM_UP = 5
"""The first steps of a training load libraries, allocate and compile."""
_COLUMNS = ", ".join(
    (
        "step, start_ns, duration_ns, duration, loss, not_finite_since, lr, samples, tokens,"
        " micro_batches, cpu_s, involuntary_switches, allocated_bytes, failed",
        *(f"{phase}_s" for phase in PHASES),
    )
)
_STEPS = (
    f"SELECT {_COLUMNS} FROM python.steps WHERE duration IS NOT NULL"  # noqa: S608 - our columns
    " AND start_ns < {until} ORDER BY start_ns"
)
_OTHER_WORK = (
    "SELECT start_ns, duration_ns FROM python.checkpoints WHERE duration IS NOT NULL",
    "SELECT start_ns, duration_ns FROM python.evals WHERE duration IS NOT NULL",
    "SELECT start_ns, duration_ns FROM probing.changes WHERE duration IS NOT NULL",
)
"""What a step may hold beside training."""
_EVALUATED = "SELECT step FROM python.evaluations"
_EVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a script.

    Attributes:
        name: What the user calls it.
        command: Its command line.
        state: Whether it runs, in a few words.
        steps: All steps on record that have ended, oldest first; of a process that was attached to
            twice, whose steps count from 1 again, the later ones.
        settled: Those of them that hold nothing but training, without those of the start.
        environment: The values of python.environment by kind and name; of a secret its print.
        query: Asks more of it.
    """

    name: str
    command: str
    state: str
    steps: tuple[Row, ...]
    settled: tuple[Row, ...]
    environment: Mapping[Name, str | None]
    query: Query

    @property
    def losses(self) -> tuple[Row, ...]:
        """The steps whose loss is on record, finite or not."""
        return tuple(row for row in self.steps if row["loss"] is not None)


def not_finite_in(losses: Sequence[Row]) -> tuple[Row, ...]:
    """Those of some steps whose loss is NaN or infinite."""
    return tuple(row for row in losses if not math.isfinite(row["loss"]))


def not_finite_since(losses: Sequence[Row]) -> NotFinite | None:
    """Since when the loss has not been finite any more; None where the last one is.

    Args:
        losses: All steps whose loss is on record, oldest first.
    """
    ends = (at for at in range(len(losses) - 1, -1, -1) if math.isfinite(losses[at]["loss"]))
    return since_of(losses[next(ends, 0) :])


def read_run(
    name: str,
    query: Query,
    environment: Sequence[Row],
    *,
    command: str = "",
    state: str = "",
    until_ns: int = _EVER,
) -> Run:
    """Ask for what is on record.

    Args:
        until_ns: Steps since then are left out, for they are being looked at.

    Raises:
        ProbingError: There is no record.
    """
    rows = query(_STEPS.format(until=until_ns))
    pairs = enumerate(pairwise(rows), 1)
    begin = max((at for at, (before, row) in pairs if row["step"] <= before["step"]), default=0)
    steps = tuple(rows[begin:])
    spans = [span for sql in _OTHER_WORK for span in _spans(query, sql)]
    evaluated = {row["step"] for row in _rows(query, _EVALUATED)}
    return Run(
        name=name,
        command=command,
        state=state,
        steps=steps,
        settled=_settled(steps, spans, evaluated),
        environment={
            (row["kind"], row["name"]): row["fingerprint"] if row["is_secret"] else row["value"]
            for row in environment
        },
        query=query,
    )


def _rows(query: Query, sql: str) -> Sequence[Row]:
    """Rows of a table that is not there where nothing of its kind has happened."""
    try:
        return query(sql)
    except ProbingError:
        return ()


def _spans(query: Query, sql: str) -> list[tuple[int, int]]:
    return [(r["start_ns"], r["start_ns"] + r["duration_ns"]) for r in _rows(query, sql)]


def _settled(
    steps: Sequence[Row], spans: Sequence[tuple[int, int]], evaluated: set[int]
) -> tuple[Row, ...]:
    """The steps that hold nothing but training."""
    first = steps[0]["step"] if steps else 0
    least = first + WARM_UP if first <= 1 else first
    kept = [row for row in steps if row["step"] >= least and not row["failed"]]
    quiet = [row for row in kept if row["step"] not in evaluated]
    if 2 * len(quiet) > len(kept):  # else each step asks its network first, as a policy
        kept = quiet
    begins = np.array([begin for begin, _ in spans], dtype=np.int64)
    ends = np.array([end for _, end in spans], dtype=np.int64)
    return tuple(
        row
        for row in kept
        if not ((begins < row["start_ns"] + row["duration_ns"]) & (ends > row["start_ns"])).any()
    )


def together(
    before: Run, after: Run, *, least: int = 64
) -> tuple[tuple[Row, ...], tuple[Row, ...], bool]:
    """The settled steps of two runs: of the same numbers where there are enough of these.

    Args:
        least: How many are enough.

    Returns:
        Those of the first run, those of the second, and whether their numbers are the same.
    """
    numbers = [{row["step"] for row in run.settled} for run in (before, after)]
    common = numbers[0] & numbers[1]
    if len(common) < least:
        return before.settled, after.settled, False
    first, second = (
        tuple(row for row in run.settled if row["step"] in common) for run in (before, after)
    )
    return first, second, True


def column(rows: Sequence[Row], name: str, *, missing: float = 0.0) -> Floats:
    """A column as numbers; what is NULL is as it is said here."""
    values = [missing if row[name] is None else float(row[name]) for row in rows]
    return np.array(values, dtype=np.float64)
