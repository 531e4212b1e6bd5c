"""The one run whose rows are asked for, where a command names it.

Rules of this file: says which rows are its, reads nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ...sql.quoting import text_literal

EVERY_RANK = -1


class Chosen(NamedTuple):
    """One run of a history, or of several ranks one.

    Attributes:
        rank: Which one; None of a process without one, EVERY_RANK for all.
        first_day, last_day: Where all of its rows are, as far as that is known.
    """

    run: str
    project: str
    job: str | None
    rank: int | None
    first_day: str | None = None
    last_day: str | None = None

    def may_be_in(self, file: str) -> bool:
        """Whether rows of it may be in a file, by the day of its folder."""
        day = file.rpartition("/day=")[2].partition("/")[0]
        return (self.first_day or day) <= day <= (self.last_day or day)


def rows_chosen(chosen: Chosen | None) -> str:
    """What stands behind FROM to keep the rows of one run or process alone; nothing for all."""
    if chosen is None:
        return ""
    of_run = f" WHERE run = {text_literal(chosen.run)}"
    if chosen.rank == EVERY_RANK:
        return of_run
    rank = "IS NULL" if chosen.rank is None else f"= {chosen.rank}"
    return f"{of_run} AND rank {rank}"
