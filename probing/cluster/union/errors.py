"""The errors of a statement over many ranks."""

from __future__ import annotations

from ...errors import SqlError, Unreachable
from ...units import size


class UnionTooLarge(SqlError):
    """More rows would have to be moved from the ranks than may be."""

    code = "union_too_large"
    status = 413
    help = (
        "Name fewer columns, add a WHERE or a LIMIT, or aggregate by keys, which the ranks do"
        " themselves; --explain shows what is pushed to them, and --budget-mib allows more."
    )

    def __init__(self, *, estimate: int, rows: int, ranks: int, budget: int) -> None:
        super().__init__(
            f"the statement would move about {size(estimate)} ({rows:,} rows of {ranks:,}"
            f" processes), and {size(budget)} are allowed"
        )


class AnswerCut(Unreachable):
    """A rank's answer was cut by the limits of its agent."""

    code = "answer_cut"
    status = 413
    help = (
        "Narrow the statement, or raise PROBING_QUERY_MAX_ROWS and PROBING_QUERY_MAX_BYTES there:"
        " `probing ENDPOINT config PROBING_QUERY_MAX_BYTES=...`."
    )

    def __init__(self, why: str) -> None:
        super().__init__(f"its rows were left out, since not all of them came: {why}")
