"""One SQL statement over the tables of many processes.

Rules of this file: it checks and plans the statement over empty tables, has the plan's rows
gathered, and runs the statement over them, all within one time limit. Where parts of aggregates
turn out not to fit together, rows are moved instead: never a wrong answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from ...errors import SqlError
from ...messages.limits import DEFAULT_TIMEOUT_S
from ...ring.arrow_tables import schema_of
from ...sql.answer import Answer, Rows
from ...sql.engine import Engine
from ...sql.process_columns import added_columns, with_ranks
from ...sql.scans import TableProvider, may_read_any
from ...tables import OWN_SCHEMA, TABLES, Table
from ..job.membership import Member
from ..job.outcomes import Coverage, Outcome
from .budget import DEFAULT_BUDGET_MIB
from .gathered import Gathered, gather
from .own_tables import declared_by
from .parts import Part, RankTable
from .statements.leaves import PARTIALS, Leaf, Plan
from .statements.planning import make_plan
from .statements.syntax import Syntax

_SHARE = 0.8
"""How much of the time the ranks have; the rest is for what runs where their rows meet."""
_LEAST_S = 1.0
_MEMORY_MIB = 1024


class UnionAnswer(Rows):
    """An answer over many processes.

    What is told about it beside its rows is complete once they have been read.

    Attributes:
        answer: The rows, as one process gives them.
        plan: What was asked of the processes, and what ran over their rows.
    """

    def __init__(self, rows: Answer, plan: Plan, gathered: Sequence[Gathered]) -> None:
        self.answer, self.plan = rows, plan
        self._gathered = gathered

    def __repr__(self) -> str:
        return repr(self.answer).replace("Answer", "UnionAnswer", 1)

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        return self.answer.to_arrow()

    @property
    def truncated(self) -> str | None:
        """A sentence that says why rows are missing; None while the answer is whole."""
        return self.answer.truncated

    @property
    def coverage(self) -> Coverage:
        """Who answered and who did not."""
        return Coverage.of(self.outcomes)

    @property
    def outcomes(self) -> tuple[Outcome[list[Part]], ...]:
        """Who was asked and what became of it; one that failed once has failed."""
        found: dict[Member, Outcome[list[Part]]] = {}
        for outcome in [o for gathered in self._gathered for o in gathered.outcomes]:
            if outcome.member not in found or outcome.state != "answered":
                found[outcome.member] = outcome
        return tuple(found.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What the person should know about how the answer came about."""
        return tuple(dict.fromkeys(note for g in self._gathered for note in g.notes))

    @property
    def moved_rows(self) -> int:
        """How many rows came from the processes."""
        return sum(gathered.rows for gathered in self._gathered)

    @property
    def moved_bytes(self) -> int:
        """Their bytes."""
        return sum(gathered.size for gathered in self._gathered)


class Union:
    """The tables of many processes as those of one database.

    Args:
        members: The processes, in the order in which their rows are to come.
        budget_mib: What all of them may send together.
        token: The token of TCP requests.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        budget_mib: float = DEFAULT_BUDGET_MIB,
        token: str | None = None,
    ) -> None:
        self._members = tuple(members)
        self._budget_bytes = int(budget_mib * 2**20)
        self._token = token

    def query(
        self,
        sql: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_rows: int | None = None,
    ) -> UnionAnswer:
        """Run one statement over the rows of all processes.

        Args:
            timeout_s: When the answer has to be there; who is late by then is left out.
            max_rows: Where to cut the answer.

        Raises:
            ProbingError: The statement cannot be run. That processes do not answer is no error:
                see `UnionAnswer.outcomes`.
        """
        syntax = Syntax()
        try:
            asked = _Statement(self, syntax, sql, timeout_s)
            return asked.run(max_rows)
        finally:
            syntax.close()

    def explain(self, sql: str) -> Plan:
        """What the processes would be asked, and what would run over their rows.

        Raises:
            ProbingError: The statement cannot be run.
        """
        syntax = Syntax()
        try:
            return _Statement(self, syntax, sql, DEFAULT_TIMEOUT_S).plan()
        finally:
            syntax.close()

    def schema(self, sql: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> pa.Schema:
        """The columns of a statement's rows; no process is asked for any.

        Raises:
            ProbingError: The statement cannot be run.
        """
        syntax = Syntax()
        try:
            asked = _Statement(self, syntax, sql, timeout_s)
            asked.plan()
            return asked.schema
        finally:
            syntax.close()

    def own_tables(self, timeout_s: float) -> tuple[Table, ...]:
        """The tables that the scripts of the processes have declared."""
        return declared_by(self._members, timeout_s=timeout_s, token=self._token)

    def gather(self, plan: Plan, syntax: Syntax, timeout_s: float) -> Gathered:
        """Have the rows of a plan."""
        return gather(
            plan,
            self._members,
            syntax=syntax,
            budget_bytes=self._budget_bytes,
            timeout_s=timeout_s,
            token=self._token,
        )


class _Statement:
    """One statement on its way."""

    def __init__(self, union: Union, syntax: Syntax, sql: str, timeout_s: float) -> None:
        self._union, self._syntax, self._sql = union, syntax, sql
        self._until = time.monotonic() + timeout_s
        self.schema = pa.schema([])
        self._known = (*TABLES, *self._own_tables()) if may_read_any(sql) else TABLES
        self._gathered: list[Gathered] = []

    def run(self, max_rows: int | None) -> UnionAnswer:
        """The answer."""
        plan = self.plan()
        if plan.is_merged:
            try:
                return self._answer(plan, max_rows, schema=self.schema)
            except (SqlError, pa.ArrowException):
                self._gathered.clear()
                plan = self.plan(may_merge=False)
        return self._answer(plan, max_rows)

    def plan(self, *, may_merge: bool = True) -> Plan:
        """Check the statement over empty tables, and decide how to answer it."""
        plans: list[str] = []
        try:
            self._check(plans)
        except SqlError:
            self._known = (*TABLES, *self._own_tables())
            self._check(plans)
        return make_plan(
            self._syntax,
            self._sql,
            self._known,
            plan=plans[0] if plans else None,
            names=self.schema.names,
            types_of=self._types_of,
            may_merge=may_merge,
        )

    def _own_tables(self) -> tuple[Table, ...]:
        return self._union.own_tables(self._left() * _SHARE)

    def _check(self, plans: list[str]) -> None:
        """Learn plan and columns of the statement, or raise what is wrong with it."""
        engine = Engine([_empty(table) for table in self._known], tell_plan=plans.append)
        with engine.run(self._sql, timeout_s=self._left()) as answer:
            self.schema = answer.schema

    def _answer(
        self, plan: Plan, max_rows: int | None, schema: pa.Schema | None = None
    ) -> UnionAnswer:
        """Gather and run.

        Raises:
            SqlError: The answer has other columns than `schema`, or the statement fails.
        """
        tables = self._gather(plan)
        failed = [o.error for g in self._gathered for o in g.outcomes if o.error is not None]
        if plan.is_merged and any(error.code == "sql" for error in failed):
            raise SqlError("a rank cannot compute its part")
        engine = Engine(self._providers(plan, tables), memory_mib=_MEMORY_MIB)
        rows = engine.run(plan.root, timeout_s=self._left(), max_rows=max_rows)
        if schema is not None and rows.schema.types != schema.types:
            rows.close()
            raise SqlError("the parts do not fit together")
        return UnionAnswer(rows, plan, self._gathered)

    def _gather(self, plan: Plan) -> tuple[pa.Table, ...]:
        if not plan.leaves:
            return ()
        gathered = self._union.gather(plan, self._syntax, self._left() * _SHARE)
        self._gathered.append(gathered)
        return gathered.tables

    def _providers(self, plan: Plan, tables: Sequence[pa.Table]) -> list[TableProvider]:
        """The tables where the rows meet."""
        if plan.is_merged:
            return [_Partials(tables[0])]
        found = {leaf.table.name: rows for leaf, rows in zip(plan.leaves, tables, strict=True)}
        return [
            RankTable(
                table,
                _here(found[t]) if (t := table.name) in found else partial(self._later, table),
            )
            for table in self._known
        ]

    def _later(self, table: Table, columns: frozenset[str] | None) -> pa.Table:
        """The rows of a table that no plan named, when a scan of it begins."""
        added = {column.name for column in added_columns(table)}
        names = tuple(c.name for c in table.columns if columns is None or c.name in columns - added)
        plan = Plan(leaves=(Leaf(table=table, columns=names),), root="")
        return self._gather(plan)[0]

    def _types_of(self, texts: Sequence[str], table: Table) -> Sequence[str]:
        """DuckDB's names for the types of aggregates over a table."""
        items = ", ".join(f"typeof({text})" for text in texts)
        engine = Engine([_empty(table)])
        with engine.run(f"SELECT {items} FROM {table.full_name}", timeout_s=self._left()) as answer:
            row = answer.to_arrow()
        return [str(row.column(i)[0].as_py()) for i in range(len(texts))]

    def _left(self) -> float:
        return max(_LEAST_S, self._until - time.monotonic())


class _Partials:
    """The parts of aggregates, as the ranks gave them."""

    def __init__(self, rows: pa.Table) -> None:
        self.table = Table(name=PARTIALS, doc="", kind="live", columns=(), schema=OWN_SCHEMA)
        self.arrow_schema = rows.schema
        self._rows = rows

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        return self._rows


def _empty(table: Table) -> RankTable:
    """A table without rows, to plan with."""
    return RankTable(table, lambda _: schema_of(with_ranks(table)).empty_table())


def _here(rows: pa.Table) -> Callable[[frozenset[str] | None], pa.Table]:
    return lambda _: rows
