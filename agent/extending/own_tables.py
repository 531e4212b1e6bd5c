"""Gives the tables of the script their rings, and takes them away again.

Rules of this file: runs where a table is declared or where the agent starts, and raises nothing
there: what cannot be recorded is a sentence among the agent's problems.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...errors import ProbingError
from ...safety.guard import try_each
from ...script.own_tables import ScriptTable
from ..recording.source import SourceReport
from .own_rows import OwnRows

if TYPE_CHECKING:
    from ..state import Agent


class OwnTables:
    """The tables of the script that are recorded, by their names."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._rows: dict[str, OwnRows] = {}
        self._lock = threading.RLock()  # a signal's handler may come back here

    def open(self, table: ScriptTable) -> None:
        """Record a table, unless it is recorded already; raises nothing."""
        name = table.declared.full_name
        try:
            with self._lock:
                if table.declared.name not in self._rows:
                    self._agent.names()  # which says where records may be, and how large
                    ring = self._agent.make_ring(table.declared, table.rows)
                    rows = self._rows[table.declared.name] = OwnRows(table, ring, self._agent)
                    rows.start()
        except (ProbingError, OSError, ValueError) as error:
            self._agent.problems.append(f"{name} is not recorded: {error}")
            try_each((self._agent.write_card,))

    def reports(self) -> list[SourceReport]:
        """How each stands."""
        return [rows.report() for rows in tuple(self._rows.values())]

    def close(self) -> None:
        """Record no more; what is recorded stays."""
        try_each(tuple(rows.close for rows in self._rows.values()))
