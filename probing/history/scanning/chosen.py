"""Which rows are those of a run, and of which days; of one that a command names.

Rules of this file: says where they are, reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any, NamedTuple

from ...sql.quoting import text_literal
from ..naming import began_on

EVERY_RANK = -1


class Days(NamedTuple):
    """Days in UTC, such as 2026-11-24, from the first to the last; None where one is not known."""

    first: str | None = None
    last: str | None = None

    def __contains__(self, day: object) -> bool:
        """Whether a day may be one of them."""
        return (self.first or "") <= str(day) <= (self.last or str(day))


class Chosen(NamedTuple):
    """One run of a history, or of several ranks one.

    Attributes:
        rank: Which one; None of a process without one, EVERY_RANK for all.
        days: Where all of its rows are.
    """

    run: str
    project: str
    job: str | None
    rank: int | None
    days: Days = Days()

    def may_be_in(self, file: str) -> bool:
        """Whether rows of it may be in a file, by the day of its folder."""
        return file.rpartition("/day=")[2].partition("/")[0] in self.days


def rows_chosen(chosen: Chosen | None) -> str:
    """What stands behind FROM to keep the rows of one run or process alone; nothing for all."""
    if chosen is None:
        return ""
    of_run = f" WHERE run = {text_literal(chosen.run)}"
    if chosen.rank == EVERY_RANK:
        return of_run
    rank = "IS NULL" if chosen.rank is None else f"= {chosen.rank}"
    return f"{of_run} AND rank {rank}"


def days_of(run: str, processes: Sequence[Mapping[str, Any]]) -> Days:
    """The days that rows of a run may be of.

    None is of before the run began, which its name says: an agent that came into a process again
    says it of itself alone. None is of after its last export, where all had ended by then. A day is
    added at both ends, for clocks that are set.

    Args:
        processes: Rows of probing.processes, all that the run has.
    """
    named, last = began_on(run), None
    first = None if named is None else min(named, *(_day(row["started_ns"]) for row in processes))
    if all(row["has_ended"] and (row["exported_ns"] or 0) > row["started_ns"] for row in processes):
        last = max(_day(row["exported_ns"]) for row in processes)
    return Days(
        None if first is None else str(first - timedelta(days=1)),
        None if last is None else str(last + timedelta(days=1)),
    )


def _day(at_ns: int) -> date:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, tz=timezone.utc).date()
