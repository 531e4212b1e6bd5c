"""What plugins add in the process: their tables and actions.

Rules of this file: runs as recording begins, or as somebody asks; raises nothing. Each table is a
source with a guard, which is switched off at its third fault; a plugin that cannot be loaded is a
source that has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import ActRefused, PluginFailed, ProbingError
from ...messages.about.act import Change, Run
from ...messages.codec import encode
from ...messages.common import LiveRows, OwnLiveTable, OwnLiveTables, OwnTable
from ...plugins import Action, Installed, LiveTable, RecordedTable, failure, installed
from ...rundir.folders import write_private
from ...safety.guard import Guard, pass_on
from ...script.own_tables import declaration
from ...tables import Table
from ..recording.source import SourceReport
from .host import Host
from .own_rows import OwnRows
from .own_tables import OwnTables
from .values import Values


class PluginSource:
    """What writes a recorded table of a plugin's; a `StepEndJob`, and a `plugins.Writer`."""

    def __init__(self, asked: RecordedTable, rows: OwnRows) -> None:
        self._asked, self._rows, self._guard = asked, rows, rows.guard
        self._end: Callable[[], object] | None = None
        self.is_over = False
        rows.on_stop = self._stopped

    def start(self) -> None:
        """Begin; a fault of it is the plugin's."""
        if self._asked.start is not None:
            self._guard.run(self._start, self._asked.start)

    def _start(self, begin: Callable[[Any], Callable[[], object] | None]) -> None:
        self._end = begin(self)

    def _stopped(self) -> None:
        self.is_over = True
        end, self._end = self._end, None
        if end is not None:
            self._guard.run(end)

    def add(self, /, **values: Any) -> None:
        """See `plugins.Writer`."""
        self._rows.write(values)

    def guarded(self, function: Callable[..., Any]) -> Callable[..., None]:
        """See `plugins.Writer`."""

        def guarded(*args: Any, **kwargs: Any) -> None:
            if not self.is_over:
                self._guard.run(lambda: function(*args, **kwargs))

        return guarded

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        if not self.is_over and self._asked.each_step is not None:
            self._guard.run(self._add_step, self._asked.each_step)
        return self.is_over

    def failed(self, reason: str) -> None:
        """See `StepEndJob`; it raises nothing."""

    def _add_step(self, row_of: Callable[[], Mapping[str, Any] | None]) -> None:
        row = row_of()
        if row is not None:
            self._rows.write(row)


class PluginLive:
    """A live table of a plugin's."""

    def __init__(self, asked: LiveTable, table: Table, plugin: str) -> None:
        self.table = table
        self._asked, self._plugin = asked, plugin
        self.guard = Guard(table.name, lambda: None)

    def rows(self) -> LiveRows:
        """Its rows now, with a note where values are NULL that their columns cannot hold.

        Raises:
            PluginFailed: They cannot be computed.
        """
        if self.guard.has_failed:
            raise PluginFailed(self._plugin, f"{self.guard.problem}")
        try:
            return self._told(self._asked.compute())
        except Exception as error:  # noqa: BLE001 - a plugin may fail as it likes
            self.guard.fault()
            raise PluginFailed(self._plugin, failure(error)) from None

    def _told(self, rows: Iterable[Mapping[str, Any]]) -> LiveRows:
        values = Values(None)
        columns = [(column.name, column.type) for column in self.table.columns]
        told = [
            tuple([values.told(name, kind, row.get(name)) for name, kind in columns])
            for row in rows
        ]
        return LiveRows.of(self.table, told, values.note)

    def report(self) -> SourceReport:
        """How it stands."""
        return SourceReport(
            source=self.table.name,
            state="failed" if self.guard.has_failed else "on",
            cost_s=None,
            faults=self.guard.faults,
            note=self.guard.problem,
            table=self.table.full_name,
        )


class PluginAction:
    """An action of a plugin's."""

    def __init__(self, action: Action, arguments: Mapping[str, str]) -> None:
        self._action, self._arguments = action, arguments

    def prepare(self, scene: Any) -> None:
        """Nothing to look for."""

    def apply(self, scene: Any) -> Any:
        """Do it, in the training thread."""
        from ..sources.actions.ledger import Applied

        try:
            changed = self._action.apply(scene.training.names(), self._arguments)
            return Applied(changes=tuple([_change(*one) for one in changed or ()]))
        except Exception as error:  # noqa: BLE001 - as above
            pass_on()
            raise ActRefused(
                f"{self._action.name} failed: {failure(error)}",
                help="Its plugin knows whether something was changed by then.",
            ) from None

    def finish(self, scene: Any, applied: Any, until: float) -> Any:
        """Nothing more."""
        return applied


class Plugins:
    """The plugins of a process with an agent."""

    def __init__(self, agent: Host, own: OwnTables) -> None:
        self._agent, self._own = agent, own
        self._sources: list[PluginSource] = []
        self._live: dict[str, PluginLive] = {}
        self._actions: dict[str, Action] = {}
        self._broken: list[tuple[str, str]] = []
        self._watched: object = None

    def load(self) -> None:
        """Load those that are installed; one that fails stops no other."""
        for one in installed() if self._agent.settings.plugins else ():
            if one.problem is not None:
                self._broken.append((one.name, one.problem))
                continue
            for table in one.plugin.tables:
                try:
                    self._add_table(one, table)
                except (ProbingError, TypeError, AttributeError) as error:
                    self._broken.append((one.name, failure(error)))
            for action in one.plugin.actions:
                self._actions.setdefault(action.name, action)
        if self._live:
            self._tell_live()

    def start(self) -> None:
        """Begin to record."""
        for source in self._sources:
            source.start()

    def watch_steps(self) -> None:
        """Have sources hear of the ends of steps, by the training that there is now."""
        training = self._agent.training
        if self._watched is not training:
            self._watched = training
            for source in self._sources:
                training.safe_points.begin_job(source)

    def reports(self) -> list[SourceReport]:
        """How live tables stand, and what cannot be used."""
        broken = [
            SourceReport(f"plugin {name}", "failed", None, 1, f"it cannot be used: {why}", "")
            for name, why in self._broken
        ]
        return [*(live.report() for live in self._live.values()), *broken]

    def live(self, name: str) -> PluginLive | None:
        """The live table of that name."""
        return self._live.get(name)

    def action(self, asked: Run) -> PluginAction:
        """The action that is asked for.

        Raises:
            ActRefused: There is none, or it has no such parameter.
        """
        action = self._actions.get(asked.name)
        if action is None:
            names = ", ".join(sorted(self._actions)) or "none"
            raise ActRefused(f"no plugin has an action {asked.name}; there are: {names}")
        values = dict(action.parameters)
        for word in asked.arguments:
            name, equals, value = word.partition("=")
            if not equals or name not in values:
                names = ", ".join(values) or "none"
                raise ActRefused(f"{asked.name} takes NAME=VALUE of {names}, and {word!r} is none")
            values[name] = value
        return PluginAction(action, values)

    def _add_table(self, one: Installed, asked: RecordedTable | LiveTable) -> None:
        """Take in a table.

        Raises:
            ProbingError: There can be no such table.
        """
        is_live = isinstance(asked, LiveTable)
        made = declaration(
            asked.name,
            asked.columns,
            doc=asked.doc,
            rows=1 if is_live else getattr(asked, "rows", 1),
            text_bytes=64 if is_live else getattr(asked, "text_bytes", 64),
            origin=f"plugin {one.name}",
        )
        if isinstance(asked, LiveTable):
            columns = tuple([c for c in made.declared.columns if c.name in asked.columns])
            table = made.declared._replace(kind="live", columns=columns)
            self._live[asked.name] = PluginLive(asked, table, one.name)
            return
        rows = self._own.open(made)
        if rows is not None:
            self._sources.append(PluginSource(asked, rows))

    def _tell_live(self) -> None:
        """Have who asks know which live tables there are."""
        told = OwnLiveTables(
            tables=tuple(
                [
                    OwnLiveTable(name=live.table.name, own=OwnTable.of(live.table))
                    for live in self._live.values()
                ]
            )
        )
        try:
            write_private(self._agent.folder.live_tables, encode(told))
        except OSError as error:
            self._broken.append(("tables", f"{error.strerror}"))


def _change(what: object, before: object, after: object) -> Change:
    texts = [None if one is None else str(one)[:200] for one in (before, after)]
    return Change(what=str(what)[:200], before=texts[0], after=texts[1])
