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
