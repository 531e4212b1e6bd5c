"""The plugin by itself: no training, no agent."""

from __future__ import annotations

from typing import Any

import pytest
from probing_load import disks_now, load_now, plugin
from probing_load.rules import look

from probing.rules import NotLookedAt


class Made:
    """A record made by hand."""

    def __init__(self, *loads: float) -> None:
        self._rows = [{"load": load, "processors": 2} for load in loads]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows, whatever is asked."""
        return self._rows


def test_rows_fit_their_tables() -> None:
    """Each row has the columns that are declared."""
    rows = (load_now(), next(iter(disks_now())))
    for table, row in zip(plugin.tables, rows, strict=True):
        assert set(row) == set(table.columns)


def test_an_overloaded_machine_is_told() -> None:
    """One peak is not enough, and a few steps tell nothing."""
    assert len(list(look(Made(9.0, 9.0, 9.0, 9.0, 9.0)))) == 1
    assert list(look(Made(9.0, 9.0, 9.0, 9.0, 1.0))) == []
    with pytest.raises(NotLookedAt):
        list(look(Made(9.0)))
