"""What a process's record says about out-of-memory errors.

Rules of this file: operator's side; asks what any `Process` answers, so that a live process and the
run folder of a dead one give the same report.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ProbingError, SqlError, UsageError
from ...messages.frozen import InNotebooks, dataclass
from ...postmortem.endings import LAST_MEMORY, Ending, ending_of
from ..advice import Advice, Shortage, Trend, advise

if TYPE_CHECKING:
    from ...client.base import Process

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


_FEED = """
    WITH known AS (
        FROM python.batches
        WHERE duration IS NOT NULL
          AND start_ns <= (SELECT time_ns FROM python.ooms WHERE seq = {oom})
    ), own AS (
        FROM known WHERE loader = (SELECT max_by(loader, start_ns) FROM known)
    )
    SELECT loader, max_by(batch, start_ns) FILTER (NOT exhausted) AS batch,
           max(batch) FILTER (exhausted) AS batches,
           CASE WHEN min(seq) = 1 OR loader > 0 THEN count(*) FILTER (exhausted) + 1 END AS epoch
    FROM own GROUP BY loader
"""
"""The last batch that was fetched before an error: which of how many, and of which epoch."""
_RESIDENT = """
    SELECT count(*) AS steps, min(step) AS first_step, max(step) AS last_step,
           first(bytes ORDER BY step) AS first_bytes, last(bytes ORDER BY step) AS last_bytes,
           regr_slope(bytes, step) AS per_step, regr_r2(bytes, step) AS fit
    FROM (SELECT step, max(resident_bytes) AS bytes FROM python.memory
          WHERE phase <> 'attach' AND resident_bytes IS NOT NULL
          GROUP BY step ORDER BY step DESC LIMIT 200)
"""
"""How the resident set went on, up to the last row on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomReport(InNotebooks):
    """An out-of-memory error, or the end of a process that may have been one.

    Attributes:
        errors: How many errors are on record.
        oom: The row of python.ooms; None where there is none.
        categories: What the tensors were, the largest first.
        growth: What grew before it, the newest first.
        advice: What to do.
        ending: How the process ended; None while it runs, or where that cannot be seen.
        feed: The loader, batch, batches and epoch of the last batch that was fetched before it, as
            far as they are known; None where none was.
        resident: How the resident set went on before a process was killed: the steps and bytes
            that it began and ended with, and the line through them. None where it was not.
    """

    errors: int
    oom: Row | None
    categories: tuple[Row, ...]
    growth: tuple[Row, ...]
    advice: tuple[Advice, ...]
    ending: Ending | None
    resident: Row | None = None
    feed: Row | None = None


def report_on(process: Process, number: int | None = None) -> OomReport:
    """The report of an error.

    Args:
        number: Its `seq` in python.ooms; the last one if not given.

    Raises:
        ProbingError: The record cannot be read, or has no such error.
    """
    rows = process.query(_OOMS).to_pylist()
    last = _last_memory(process)
    ending = ending_of(process.folder, last) if process.folder is not None else None
    if number is not None:
        rows_found = [row for row in rows if row["seq"] == number]
        if not rows_found:
            raise UsageError(
                f"there is no error {number} in python.ooms.",
                help=f"{len(rows)} are on record; without --seq, the last one is shown.",
            )
    else:
        rows_found = rows[-1:]
    if not rows_found:
        return _of_ending(process, ending, last)
    oom = rows_found[0]
    categories = _of(process, "oom_categories", oom)
    feeds = process.query(_FEED.format(oom=int(oom["seq"]))).to_pylist()
    return OomReport(
        errors=len(rows),
        oom=oom,
        categories=categories,
        growth=_of(process, "oom_growth", oom),
        advice=advise(_shortage(process, oom, categories)),
        ending=ending,
        feed=feeds[0] if feeds else None,
    )


def _of(process: Process, table: str, oom: Row) -> tuple[Row, ...]:
    """The rows of a table that belong to an error."""
    sql = f"SELECT * EXCLUDE (oom, time_ns) FROM python.{table} WHERE oom = {oom['seq']:d} ORDER BY seq"  # noqa: S608, E501
    return tuple(process.query(sql).to_pylist())


def _shortage(process: Process, oom: Row, categories: Sequence[Row]) -> Shortage:
    """What the rules look at."""
    known = [row for row in categories if row["bytes"] is not None]
    here = [row for row in known if row["device"] == oom["device"]]
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
    try:
        return process.status().world_size
    except ProbingError:
        return None


def _last_memory(process: Process) -> list[dict[str, Any]]:
    """The newest rows of python.memory of a process of this machine."""
    if process.folder is None:
        return []
    try:
        return process.query(LAST_MEMORY).to_pylist()
    except SqlError:  # an agent that does not write the table
        return []


def _of_ending(process: Process, ending: Ending | None, last: Sequence[Row]) -> OomReport:
    """The report where no error is on record: the kernel may have left no time for one."""
    report = OomReport(errors=0, oom=None, categories=(), growth=(), advice=(), ending=ending)
    if ending is None or not ending.was_killed or not last:
        return report
    rows = process.query(_RESIDENT).to_pylist()
    resident = rows[0] if rows and rows[0]["steps"] else None
    advice: tuple[Advice, ...] = ()
    if ending.by_memory:
        advice = advise(_shortage_of_kill(last[0], resident, by_cgroup=ending.by_cgroup))
    return dataclasses.replace(report, resident=resident, advice=advice)


def _shortage_of_kill(last: Row, resident: Row | None, *, by_cgroup: bool) -> Shortage:
    """What the rules look at where the kernel has killed the process."""
    limit = last["cgroup_limit_bytes"] if by_cgroup else None
    trend = None
    if resident is not None and resident["per_step"] is not None:
        steps = resident["last_step"] - resident["first_step"] + 1
        trend = Trend(steps=steps, per_step=resident["per_step"], fit=resident["fit"] or 0.0)
    return Shortage(
        is_host=True,
        is_kill=True,
        phase="other",
        bounded_by="machine" if limit is None else "cgroup",
        total=last["node_total_bytes"] if limit is None else limit,
        resident=last["resident_bytes"],
        trend=trend,
    )
