"""Where the rows of each table of a process come from, for the SQL engine.

Rules of this file: runs at the operator's side and in the SQL worker. Recorded tables are read from
the process's files, live ones asked of its agent or had from outside.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..errors import ProcessEnded
from ..messages.limits import DEFAULT_TIMEOUT_S, WAIT_S, ready_s, start_s
from ..reach import ladder
from ..reach.address import Address
from ..reach.ping import ping
from ..ring.columns.recorded import Recorded
from ..ring.peek import tables_of
from ..rundir.folders import ProcessFolder
from ..stacks import text as stacks
from ..tables import (
    ALLOC_BLOCKS,
    ALLOC_EVENTS,
    ENVIRONMENT,
    HOST_MEMORY,
    KERNELS,
    MEMORY_TABLES,
    MODULES,
    OBSERVED_COLUMNS,
    PARAMETER_CHECKSUMS,
    Table,
)
from ..tables.remaining import what_remains
from .transports import environment_of, live_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from ..messages.common import LiveRows
    from ..sql.process_columns import OneProcess
    from ..sql.scans import TableProvider

    _HaveRows = Callable[[frozenset[str] | None], LiveRows]

_WAIT_SHARE = 0.5
"""How much of a query's time the wait for a model's next call may take."""


def providers_for(
    folder: ProcessFolder,
    *,
    limit_s: float = DEFAULT_TIMEOUT_S,
    timeout_s: float | None = None,
    notes: list[str] | None = None,
) -> list[TableProvider]:
    """What the SQL engine reads the tables of a process from.

    Args:
        limit_s: What the whole query may take.
        timeout_s: What an answer of the agent may, where it need not wait for the training; None
            for what is usual: short until it has shown that it runs at all, and then as long as
            the first question of all may take, for which it loads its server.
        notes: Gets sentences about how the rows were had.
    """
    told = notes if notes is not None else []
    ping_s = timeout_s or ready_s()
    agent = _Agent(
        folder,
        ping_s=ping_s,
        answer_s=timeout_s or max(ping_s, min(start_s(), limit_s)),
        wait_s=min(WAIT_S, limit_s * _WAIT_SHARE),
    )
    return [_provider(table, folder, agent, told) for table in tables_of(folder)]


def _provider(
    table: Table, folder: ProcessFolder, agent: _Agent, notes: list[str]
) -> TableProvider:
    """Where the rows of one table come from."""
    if table.kind == "recorded":
        return _Recorded(table, folder, notes)
    if table.name in stacks.STACK_TABLES:
        return _Live(table, notes, lambda _: _stack_rows(table, folder, notes))
    if table == KERNELS:
        return _Live(table, notes, lambda _: _last_profile(folder))
    if table == HOST_MEMORY:
        return _Live(table, notes, lambda _: _host_memory(folder))
    if table in (ALLOC_EVENTS, ALLOC_BLOCKS):
        return _Live(table, notes, lambda _: _last_recording(table, folder))
    return _Live(table, notes, partial(agent.rows, table))


def over_record(folder: ProcessFolder, notes: list[str], *, timeout_s: float) -> OneProcess:
    """What runs statements in this very process, over the record of another."""
    from ..sql.process_columns import OneProcess
    from ..sql.threads import available

    providers = providers_for(folder, limit_s=timeout_s, notes=notes)
    return OneProcess(providers, folder.read_card(), threads=available())


class _Recorded(Recorded):
    """A recorded table; libraries are loaded only where the C part cannot read it."""

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from ..ring.arrow_tables import RecordedTable

        return RecordedTable(self.table, self._folder, self._notes).load(columns)


_AT_STEP_END = frozenset({*MEMORY_TABLES, PARAMETER_CHECKSUMS.name})
"""Live tables that the training fills at the end of a step."""


class _Live:
    """A live table, whose rows are had once per query."""

    def __init__(self, table: Table, notes: list[str], rows: _HaveRows) -> None:
        self.table = table
        self._notes, self._rows = notes, rows

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from ..ring.arrow_tables import live_to_arrow

        live = self._rows(columns)
        if live.note is not None:
            self._notes.append(live.note)
        return live_to_arrow(live, self.table)


class _Agent:
    """The agent of the process, which has the rows of most live tables."""

    def __init__(
        self, folder: ProcessFolder, *, ping_s: float, answer_s: float, wait_s: float
    ) -> None:
        self._folder = folder
        self._ping_s, self._answer_s, self._wait_s = ping_s, answer_s, wait_s

    def rows(self, table: Table, columns: frozenset[str] | None) -> LiveRows:
        """Ask it; the training is waited for only where a column needs that."""
        is_observed = table is MODULES and (columns is None or columns & OBSERVED_COLUMNS)
        wait_s = self._wait_s if is_observed or table.name in _AT_STEP_END else None
        if table is ENVIRONMENT:
            return environment_of(self._folder, lambda: self._ask(table, wait_s))
        return self._ask(table, wait_s)

    def _ask(self, table: Table, wait_s: float | None) -> LiveRows:
        _require_alive(table, self._folder)
        ping(self._folder, timeout_s=self._ping_s)
        address = Address(path=self._folder.socket)
        return live_rows(address, table.name, timeout_s=self._answer_s, wait_s=wait_s)


def _require_alive(table: Table, folder: ProcessFolder) -> None:
    if not folder.is_alive():
        raise ProcessEnded(
            folder.pid, f"{table.full_name} can no longer be asked{what_remains(table.name)}"
        )


def _stack_rows(table: Table, folder: ProcessFolder, notes: list[str]) -> LiveRows:
    """The stacks, by the agent or from outside."""
    backtrace = ladder.backtrace_of(folder, notes)
    if backtrace.note is not None:
        notes.append(backtrace.note)
    return stacks.rows_of(table, backtrace)


def _last_profile(folder: ProcessFolder) -> LiveRows:
    """The table of the last profile, computed from its file."""
    from ..profiling import kernel_rows
    from .profile_client import last_profile

    return kernel_rows(last_profile(folder.profile))


def _host_memory(folder: ProcessFolder) -> LiveRows:
    """The table of host memory, which the kernel tells without the help of the process."""
    from ..linux.host_memory import host_memory_rows

    _require_alive(HOST_MEMORY, folder)
    return host_memory_rows(folder.pid)


def _last_recording(table: Table, folder: ProcessFolder) -> LiveRows:
    """A table of the last recording of allocations, computed from its file."""
    from ..allocations import block_rows, event_rows
    from .recording_client import last_recording

    make = event_rows if table is ALLOC_EVENTS else block_rows
    return make(last_recording(folder.allocations))
