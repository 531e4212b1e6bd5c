"""All that others add in the process: the tables of its script, and what plugins have.

Rules of this file: made with the first of them; plugins are looked for once, as recording begins or
somebody asks. Raises nothing but where somebody asks for what there is not.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...messages.common import LiveRows
from ...safety.guard import try_each
from ..recording.source import SourceReport
from .host import Host
from .own_tables import OwnTables

if TYPE_CHECKING:
    from ...messages.about.act import Run
    from .plugins import PluginAction, Plugins


class Extensions:
    """What others have added.

    Attributes:
        tables: The tables of the script, and those that plugins record.
    """

    def __init__(self, agent: Host) -> None:
        self._agent = agent
        self.tables = OwnTables(agent)
        self._plugins: Plugins | None = None
        self._lock = threading.RLock()  # a plugin may call a model as it is imported

    def load(self) -> None:
        """Look for plugins, unless that has been done, and have their sources record."""
        failed = try_each((self._load,))
        self._agent.problems.extend(f"plugins cannot be loaded: {what}" for what in failed)

    def _load(self) -> None:
        with self._lock:
            if self._plugins is None:
                from .plugins import Plugins

                self._plugins = Plugins(self._agent, self.tables)
                self._plugins.load()
                self._plugins.start()
            self._plugins.watch_steps()

    def reports(self) -> list[SourceReport]:
        """How each table stands."""
        plugins = self._plugins.reports() if self._plugins is not None else []
        return [*self.tables.reports(), *plugins]

    def live_rows(self, table: str) -> LiveRows | None:
        """The rows of a live table of a plugin's; None where there is none of that name.

        Raises:
            PluginFailed: They cannot be computed.
        """
        live = self._plugins.live(table) if self._plugins is not None else None
        return None if live is None else live.rows()

    def action(self, asked: Run) -> PluginAction:
        """The action of a plugin's that is asked for.

        Raises:
            ActRefused: There is none.
        """
        self._load()
        assert self._plugins is not None
        return self._plugins.action(asked)

    def close(self) -> None:
        """Record no more."""
        self.tables.close()
