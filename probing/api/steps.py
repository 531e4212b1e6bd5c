"""The newest steps of a training as rows of their own kind, which a notebook draws as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError
from ..sql.answer import Rows

if TYPE_CHECKING:
    import pyarrow as pa

    from ..client.base import Process


class Steps(Rows):
    """Rows of python.steps, the oldest first, with all columns.

    Attributes:
        label: What the user called the process.
    """

    def __init__(self, label: str, table: pa.Table) -> None:
        self.label = label
        self._table = table

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        return self._table

    def __repr__(self) -> str:
        return f"<Steps of {self.label}: {len(self):,}>"


def newest_steps(process: Process, last: int, *, timeout_s: float | None) -> Steps:
    """The last so many steps.

    Raises:
        ProbingError: They cannot be had.
    """
    if last < 1:
        raise UsageError(f"steps takes how many of the last ones, at least 1, and not {last}.")
    sql = f"FROM (FROM python.steps ORDER BY seq DESC LIMIT {last}) ORDER BY seq"
    return Steps(process.label, process.query(sql, timeout_s=timeout_s).to_arrow())
