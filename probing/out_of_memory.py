"""What a process's record says about errors for want of memory.

Rules of this file: operator's side; asks what any `Process` answers, so that a live process and the
run folder of a dead one give the same report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .advice import Advice, Shortage, Trend, advise
from .endings import LAST_MEMORY, Ending, ending_of
from .errors import ProbingError, SqlError, UsageError
from .local_process import LocalProcess
from .reading import Reading

if TYPE_CHECKING:
    from .client import Process

Row = Mapping[str, Any]

_MATRIX = re.compile(r"^(?:\w+=)?\[\d+, (\d+)\]")
_OOMS = "SELECT * FROM python.ooms ORDER BY seq"
_TREND = """
    SELECT count(*) AS steps, regr_slope(allocated_bytes, step) AS per_step,
           regr_r2(allocated_bytes, step) AS fit
    FROM (FROM python.steps WHERE duration IS NOT NULL AND step < {step} AND step >= {step} - 200)
"""
_MICRO_BATCHES = """
    SELECT micro_batches FROM python.steps
    WHERE micro_batches > 0 AND duration IS NOT NULL AND step < {step}
    ORDER BY step DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomReport:
    """An error for want of memory, or the end of a process that may have been one.

    Attributes:
        errors: How many errors are on record.
        oom: The row of python.ooms; None where there is none.
        categories: What the tensors were, the largest first.
        growth: What grew before it, the newest first.
        advice: What to do.
        ending: How the process ended; None while it runs, or where that cannot be seen.
    """

    errors: int
    oom: Row | None
    categories: tuple[Row, ...]
    growth: tuple[Row, ...]
    advice: tuple[Advice, ...]
    ending: Ending | None


def report_on(process: Process, number: int | None = None) -> OomReport:
    """The report of an error.

    Args:
        number: Its `seq` in python.ooms; the last one if not given.

    Raises:
        ProbingError: The record cannot be read, or has no such error.
    """
    rows = process.query(_OOMS).to_pylist()
    ending = _ending(process)
    if number is not None:
        rows_found = [row for row in rows if row["seq"] == number]
        if not rows_found:
            raise UsageError(
                f"there is no error {number} in python.ooms.",
                help=f"{len(rows)} are on record; without --number, the last one is shown.",
            )
    else:
        rows_found = rows[-1:]
    if not rows_found:
        return OomReport(errors=0, oom=None, categories=(), growth=(), advice=(), ending=ending)
    oom = rows_found[0]
    categories = _of(process, "oom_categories", oom)
    return OomReport(
        errors=len(rows),
        oom=oom,
        categories=categories,
        growth=_of(process, "oom_growth", oom),
        advice=advise(_shortage(process, oom, categories)),
        ending=ending,
    )


def readings(timeout_s: float) -> list[Reading]:
    """What `report_on` asks of every process; of those with an error, it asks more.

    Args:
        timeout_s: The time limit of each question.
    """
    return [Reading.of_query(_OOMS, timeout_s)]


def _of(process: Process, table: str, oom: Row) -> tuple[Row, ...]:
    """The rows of a table that belong to an error."""
    sql = f"SELECT * EXCLUDE (oom, time_ns) FROM python.{table} WHERE oom = {oom['seq']:d} ORDER BY seq"  # noqa: S608, E501
    return tuple(process.query(sql).to_pylist())


def _shortage(process: Process, oom: Row, categories: Sequence[Row]) -> Shortage:
    """What the rules look at."""
    here = [row for row in categories if row["device"] == oom["device"]]
    length = _MATRIX.match(oom["batch"] or "")
    trend = process.query(_TREND.format(step=oom["step"])).to_pylist()[0]
    batches = process.query(_MICRO_BATCHES.format(step=oom["step"])).to_pylist()
    amounts = {
        name: oom[f"{name}_bytes"]
        for name in ("requested", "free", "total", "allocated", "reserved", "resident")
    }
    return Shortage(
        is_host=oom["device"] == "cpu",
        phase=oom["phase"],
        bounded_by=oom["bounded_by"],
        categories={row["category"]: row["bytes"] for row in here},
        dtypes={row["category"]: row["dtype"] for row in here if row["dtype"]},
        samples=oom["samples"],
        length=int(length[1]) if length else None,
        micro_batches=batches[0]["micro_batches"] if batches else None,
        world_size=_world_size(process),
        error=oom["error"] or "",
        trend=Trend(**trend) if trend["per_step"] is not None else None,
        **amounts,
    )


def _world_size(process: Process) -> int | None:
    """Processes of the job, where that is known."""
    try:
        return process.status().world_size
    except ProbingError:
        return None


def _ending(process: Process) -> Ending | None:
    """How a process of this machine ended."""
    if not isinstance(process, LocalProcess):
        return None
    try:
        rows = process.query(LAST_MEMORY).to_pylist()
    except SqlError:  # an agent that does not write the table
        rows = []
    return ending_of(process.folder, rows)
