"""What the check of statements reads of their text."""

from __future__ import annotations

import pytest

from probing.errors import SqlRefused
from probing.sql import gate


@pytest.mark.parametrize("sql", ["{}PIVOT t ON x", "{}PRAGMA foo", "EXPLAIN {}PIVOT t ON x"])
def test_many_comments_are_read_once(sql: str) -> None:
    """No comment is tried in two ways: 40 of them would take days."""
    text = sql.format("/*a*/ " * 40)
    assert gate.explained(text).endswith(("PIVOT t ON x", "PRAGMA foo"))
    with pytest.raises(SqlRefused):
        gate.check_statements(["PRAGMA"], text)


@pytest.mark.parametrize(
    "sql",
    [
        "/* a /* b */ c */ EXPLAIN ANALYZE FROM checkpoint()",
        "EXPLAIN /* a /* b */ c */ ANALYZE FROM truncate_duckdb_logs()",
        "/* a /* b */ c */ PRAGMA version",
        "PIVOT (FROM enable_logging/* a /* b */ c */()) ON x USING sum(y)",
    ],
)
def test_no_comment_within_a_comment_hides_what_runs(sql: str) -> None:
    """The engine has them; a plain SELECT may, for its plan is looked at."""
    for kinds in (["EXPLAIN"], ["PRAGMA"], ["MULTI"], ["CREATE", "SELECT"]):
        with pytest.raises(SqlRefused, match="comment within a comment"):
            gate.check_statements(kinds, sql)
    assert gate.check_statements(["SELECT"], f"SELECT 1 {sql[:18]}")
