"""Where the rows of each table of a process come from, for the SQL engine.

Rules of this file: runs at the operator's side and in the SQL worker. Recorded tables are read from
the process's files, live ones asked of its agent or had from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ProcessEnded
from ..messages.limits import DEFAULT_TIMEOUT_S, WAIT_S, ready_s
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
from .transports import environment_of, live_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from ..messages.common import LiveRows
    from ..sql.process_columns import OneProcess
    from ..sql.scans import TableProvider

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
            for what is usual.
        notes: Gets sentences about how the rows were had.
    """
    told = notes if notes is not None else []
    wait_s = min(WAIT_S, limit_s * _WAIT_SHARE)
    return [
        _Recorded(table, folder, told)
        if table.kind == "recorded"
        else _LastProfile(folder)
        if table == KERNELS
        else _HostMemory(folder)
        if table == HOST_MEMORY
        else _LastRecording(table, folder, told)
        if table in (ALLOC_EVENTS, ALLOC_BLOCKS)
        else _LiveTable(table, folder, timeout_s or ready_s(), wait_s, told)
        for table in tables_of(folder)
    ]


def over_record(folder: ProcessFolder, notes: list[str], *, timeout_s: float) -> OneProcess:
    """What runs statements in this very process, over the record of another."""
    from ..sql.process_columns import OneProcess

    return OneProcess(providers_for(folder, limit_s=timeout_s, notes=notes), folder.read_card())


class _Recorded(Recorded):
    """A recorded table; libraries are loaded only where the C part cannot read it."""

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from ..ring.arrow_tables import RecordedTable

        return RecordedTable(self.table, self._folder, self._notes).load(columns)


_AT_STEP_END = frozenset({*MEMORY_TABLES, PARAMETER_CHECKSUMS.name})
"""Live tables that the training fills at the end of a step."""


class _LiveTable:
    """A live table, asked of the agent once per query."""

    def __init__(
        self,
        table: Table,
        folder: ProcessFolder,
        timeout_s: float,
        wait_s: float,
        notes: list[str],
    ) -> None:
        self.table = table
        self._folder = folder
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._notes = notes

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows; the training is waited for only where a column needs that."""
        from ..ring.arrow_tables import live_to_arrow

        if self.table.name in stacks.STACK_TABLES:
            backtrace = ladder.backtrace_of(self._folder, self._notes)
            if backtrace.note is not None:
                self._notes.append(backtrace.note)
            return live_to_arrow(stacks.rows_of(self.table, backtrace))
        is_observed = self.table is MODULES and (columns is None or columns & OBSERVED_COLUMNS)
        is_observed = bool(is_observed) or self.table.name in _AT_STEP_END
        wait_s = self._wait_s if is_observed else None
        if self.table is ENVIRONMENT:
            live = environment_of(self._folder, lambda: self._ask(wait_s))
        else:
            live = self._ask(wait_s)
        if live.note is not None:
            self._notes.append(live.note)
        return live_to_arrow(live, self.table)

    def _ask(self, wait_s: float | None) -> LiveRows:
        if not self._folder.is_alive():
            raise ProcessEnded(self._folder.pid, f"{self.table.full_name} can no longer be asked")
        ping(self._folder, timeout_s=self._timeout_s)
        address = Address(path=self._folder.socket)
        return live_rows(address, self.table.name, timeout_s=self._timeout_s, wait_s=wait_s)


class _LastProfile:
    """The table of the last profile, computed from its file."""

    def __init__(self, folder: ProcessFolder) -> None:
        self.table = KERNELS
        self._folder = folder

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from ..profiling import kernel_rows
        from ..ring.arrow_tables import live_to_arrow
        from .profile_client import last_profile

        return live_to_arrow(kernel_rows(last_profile(self._folder.profile)))


class _HostMemory:
    """The table of host memory, which the kernel tells without the help of the process."""

    def __init__(self, folder: ProcessFolder) -> None:
        self.table = HOST_MEMORY
        self._folder = folder

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from ..linux.host_memory import host_memory_rows
        from ..ring.arrow_tables import live_to_arrow

        if not self._folder.is_alive():
            raise ProcessEnded(self._folder.pid, f"{self.table.full_name} can no longer be asked")
        return live_to_arrow(host_memory_rows(self._folder.pid))


class _LastRecording:
    """A table of the last recording of allocations, computed from its file."""

    def __init__(self, table: Table, folder: ProcessFolder, notes: list[str]) -> None:
        self.table = table
        self._folder = folder
        self._notes = notes

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from ..allocations import block_rows, event_rows
        from ..ring.arrow_tables import live_to_arrow
        from .recording_client import last_recording

        make = event_rows if self.table is ALLOC_EVENTS else block_rows
        live = make(last_recording(self._folder.allocations))
        if live.note is not None:
            self._notes.append(live.note)
        return live_to_arrow(live)
