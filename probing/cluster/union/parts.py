"""Asks one process for what a plan needs of it.

Rules of this file: runs in a thread for each process, many at the same time. The rings of this
machine are read here, by the process that asks; everything else is asked of an agent. An answer
that is not whole is an error. What a process of an older version lacks is NULL, and a note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import pyarrow as pa

from ...client.base import Process
from ...client.providers import providers_for
from ...errors import ProbingError, RingError
from ...messages.frozen import dataclass
from ...messages.limits import DEFAULT_TIMEOUT_S
from ...ring.peek import RingPeek
from ...rundir.folders import ProcessFolder
from ...sql.engine import Engine
from ...sql.process_columns import add_columns, added_values, concatenated, with_ranks
from ...tables import Table
from ..job.membership import Member
from .budget import Budget, width_of
from .errors import AnswerCut
from .own_tables import as_declared
from .statements.leaves import Leaf

_RAW_AT_ONCE = 32 << 20
"""Rows of a ring of this many bytes are put through a leaf by themselves, and then let go."""


@dataclass(slots=True, kw_only=True)
class Part:
    """What one process gave for one leaf.

    Attributes:
        rows: Its answer, or the rows of its ring before the leaf.
        is_raw: Whether the leaf's statement has still to run over them.
        is_refused: Whether the budget did not allow to move them.
    """

    rows: pa.Table | None = None
    is_raw: bool = False
    is_refused: bool = False
    notes: list[str] = field(default_factory=list)


class RankTable:
    """A table over many processes, whose rows are there or are had as a scan of it begins.

    Args:
        load: See `TableProvider.load`.
    """

    def __init__(self, table: Table, load: Callable[[frozenset[str] | None], pa.Table]) -> None:
        self.table, self.load = with_ranks(table), load


class Asker:
    """Asks processes for the leaves of one plan."""

    def __init__(self, leaves: Sequence[Leaf], budget: Budget, *, timeout_s: float) -> None:
        self._leaves, self._budget, self._timeout_s = leaves, budget, timeout_s

    def ask(self, process: Process, member: Member) -> list[Part]:
        """A part for each leaf.

        Raises:
            ProbingError: One of them cannot be had; then none is.
        """
        if process.folder is not None:
            return [self._read(process.folder, member, leaf) for leaf in self._leaves]
        return [self._request(process, member, leaf) for leaf in self._leaves]

    def _read(self, folder: ProcessFolder, member: Member, leaf: Leaf) -> Part:
        """The rows of a process of this machine."""
        part = Part(notes=lacking_in_ring(folder, leaf))
        providers = providers_for(folder, limit_s=self._timeout_s, notes=part.notes)
        provider = next((p for p in providers if p.table.full_name == leaf.table.full_name), None)
        if provider is None:
            part.notes.append(f"there is no table {leaf.table.full_name} there")
            return part
        raw = provider.load(frozenset(leaf.columns))
        if provider.table != leaf.table:
            raw = as_declared(raw, leaf.table)
        part.rows, part.is_raw = add_columns(leaf.table, member, raw, leaf.columns), True
        if leaf.is_plain:
            size = raw.num_rows * width_of(leaf)
            if not self._budget.take((member, leaf.table.name), size=size, rows=raw.num_rows):
                part.rows, part.is_refused = None, True
        elif raw.num_rows * width_of(leaf) > _RAW_AT_ONCE:
            part.rows, part.is_raw = run_leaf(leaf, part.rows, timeout_s=self._timeout_s), False
        return part

    def _request(self, process: Process, member: Member, leaf: Leaf) -> Part:
        """The answer of an agent; of one of an older version without what it lacks."""
        try:
            return self._ask_agent(process, member, leaf, frozenset())
        except ProbingError as error:
            if error.code != "sql":
                raise
            known = _columns_there(process, leaf.table, self._timeout_s)
            lacking = frozenset(c.name for c in leaf.table.columns) - known
            if not lacking & frozenset(leaf.columns) and known:
                raise
            part = Part(rows=None)
            if known:
                part = self._ask_agent(process, member, leaf, lacking)
            names = ", ".join(sorted(lacking & frozenset(leaf.columns)))
            what = f"{leaf.table.full_name} has no {names} there, read as NULL"
            part.notes.append(what if known else f"there is no table {leaf.table.full_name} there")
            return part

    def _ask_agent(
        self, process: Process, member: Member, leaf: Leaf, lacking: frozenset[str]
    ) -> Part:
        """The answer of an agent to a leaf's statement."""
        added = added_values(leaf.table, member)
        who = (member, leaf.table.name)
        if not leaf.items and not self._has_room(process, member, leaf, lacking):
            return Part(is_refused=True)
        rows = _answer(process, leaf.sql(added=added, lacking=lacking), self._timeout_s)
        if not self._budget.take(who, size=rows.nbytes, rows=rows.num_rows):
            return Part(is_refused=True)
        return Part(
            rows=rows if leaf.items else add_columns(leaf.table, member, rows, leaf.columns)
        )

    def _has_room(
        self, process: Process, member: Member, leaf: Leaf, lacking: frozenset[str]
    ) -> bool:
        """Whether the budget has room for the rows: for all there are, else for those meant."""
        who, width = (member, leaf.table.name), width_of(leaf)
        if leaf.table.kind != "recorded":
            return True
        held = [t for t in process.tables().tables if t.name == leaf.table.name]
        most = sum(table.rows or 0 for table in held)
        if self._budget.take(who, size=most * width, rows=most):
            return True
        if leaf.is_plain:
            return False
        text = leaf.count_sql(added=added_values(leaf.table, member), lacking=lacking)
        counted: int = _answer(process, text, self._timeout_s).column(0)[0].as_py()
        return self._budget.take(who, size=counted * width, rows=counted)


def run_leaf(leaf: Leaf, rows: pa.Table, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> pa.Table:
    """The answer of a leaf's statement over rows that are here, of one process or several."""
    return run_over(leaf.table, leaf.sql(added=None), rows, timeout_s=timeout_s)


def run_over(table: Table, sql: str, rows: pa.Table, *, timeout_s: float) -> pa.Table:
    """The answer of a statement over a table of many processes whose rows are here."""
    whole = concatenated(table, [rows])
    with Engine([RankTable(table, lambda _: whole)]).run(sql, timeout_s=timeout_s) as answer:
        return answer.to_arrow()


def lacking_in_ring(folder: ProcessFolder, leaf: Leaf) -> list[str]:
    """A note on the columns that the process's version did not record."""
    if leaf.table.kind != "recorded":
        return []
    try:
        with RingPeek(folder.ring(leaf.table.name)) as ring:
            stored = {field.name for field in ring.header.fields}
    except (OSError, RingError):
        return []
    declared = {c.name for c in leaf.table.stored_columns} - {"failed", "seq"}
    names = ", ".join(sorted((declared - stored) & set(leaf.columns)))
    return [f"{leaf.table.full_name} has no {names} there, read as NULL"] if names else []


def _answer(process: Process, sql: str, timeout_s: float) -> pa.Table:
    """All rows of an agent's answer.

    Raises:
        AnswerCut: Its limits have cut it.
    """
    with process.query(sql, timeout_s=timeout_s) as answer:
        rows = answer.to_arrow()
        if answer.truncated:
            raise AnswerCut(answer.truncated)
        return rows


def _columns_there(process: Process, table: Table, timeout_s: float) -> frozenset[str]:
    """The columns that a table has at an agent; none where there is no such table."""
    rows = _answer(
        process,
        "SELECT column_name FROM duckdb_columns()"
        f" WHERE schema_name = '{table.schema}' AND table_name = '{table.name}'",
        timeout_s,
    )
    return frozenset(rows.column(0).to_pylist())
