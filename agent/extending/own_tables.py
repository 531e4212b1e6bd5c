"""Gives the tables of the script their rings, and takes them away again.

Rules of this file: runs where a table is declared or where the agent starts, and raises nothing
there: what cannot be recorded is a sentence among the agent's problems.
"""

from __future__ import annotations

import threading

from ...errors import ProbingError
from ...safety.guard import try_each
from ...script.own_tables import ScriptTable
from ..recording.source import SourceReport
from .host import Host
from .own_rows import OwnRows


class OwnTables:
    """The tables of the script that are recorded, by their names."""

    def __init__(self, agent: Host) -> None:
        self._agent = agent
        self._rows: dict[str, OwnRows] = {}
        self._lock = threading.RLock()  # a signal's handler may come back here

    def open(self, table: ScriptTable) -> OwnRows | None:
        """Record a table, unless it is recorded already; raises nothing.

        Returns:
            What writes it; None where nothing can.
        """
        name = table.declared.full_name
        try:
            with self._lock:
                there = self._rows.get(table.declared.name)
                if there is None:
                    self._agent.names()  # which says where records may be, and how large
                    ring = self._agent.make_ring(table.declared, table.rows)
                    there = self._rows[table.declared.name] = OwnRows(table, ring, self._agent)
                    there.start()
            if there.table is table:
                return there
            other = there.table.declared.origin
            self._say(f"{name} of the {table.declared.origin} is not recorded: it is the {other}'s")
        except (ProbingError, OSError, ValueError) as error:
            self._say(f"{name} is not recorded: {error}")
        return None

    def _say(self, problem: str) -> None:
        if problem not in self._agent.problems:
            self._agent.problems.append(problem)
            try_each((self._agent.write_card,))

    def reports(self) -> list[SourceReport]:
        """How each stands."""
        return [rows.report() for rows in tuple(self._rows.values())]

    def abandon(self) -> None:
        """Runs in a forked child: they are the parent's; takes no lock."""
        for rows in tuple(self._rows.values()):
            rows.abandon()

    def close(self) -> None:
        """Record no more; what is recorded stays."""
        try_each(tuple([rows.close for rows in self._rows.values()]))
