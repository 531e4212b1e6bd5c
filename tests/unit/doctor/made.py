"""Records and answers made by hand, asked as a process is.

The recorded tables are real ones of DuckDB, made from the declarations as they are asked for, so
that each query of a rule runs as it stands.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from probing.cli.render.process.catalog import sql_type
from probing.cluster.job.membership import Member
from probing.diagnosis.doctor.facts import Facts
from probing.diagnosis.doctor.findings import Sign
from probing.diagnosis.doctor.report import ALL_RULES
from probing.diagnosis.doctor.rules import RULES
from probing.diagnosis.hang.evidence import Verdict
from probing.errors import NoLabels, NotAnswering, SqlError
from probing.messages.about.labels import LabelsAnswer
from probing.messages.common import Armed, ArmedAnswer
from probing.tables import TABLES
from tests.harness.targets import DEADLINE_S

Row = Mapping[str, Any]
# One thread: to share rows as few as these out takes longer than to go through them.
_ENGINE, _NUMBERS = duckdb.connect(config={"threads": 1}), itertools.count()
_TABLES = {table.full_name: table for table in TABLES if table.kind == "recorded"}
Stack = tuple[tuple[str, ...], int]
Live = Mapping[str, Sequence[Row] | Callable[[], Sequence[Row]]]

FINE = Verdict(kind="healthy", is_hang=False, headline="No hang: process 1 moved.")


@functools.cache
def _columns(name: str) -> Mapping[str, str]:
    """The columns of a recorded table, and what SQL calls their types."""
    return {column.name: sql_type(column) for column in _TABLES[name].columns}


@functools.cache
def _declaration(name: str) -> str:
    """The statement that makes a recorded table without rows."""
    columns = ", ".join(f'"{c}" {kind}' for c, kind in _columns(name).items())
    return f"CREATE TABLE {name} ({columns})"


class _Rows:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def to_pylist(self) -> list[dict[str, Any]]:
        return self._rows

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self._rows]


class _Here:
    """The folder of a process on this machine."""

    path = Path("/nowhere")
    names = path / "names"

    def is_alive(self) -> bool:
        """It runs."""
        return True

    def is_of_this_boot(self) -> bool:
        """It does."""
        return True

    def ring(self, table: str) -> Path:
        """No file: the rows are in a database."""
        return Path(f"/nowhere/{table}.ring")


class _Sampled(NamedTuple):
    stacks: Sequence[Stack]


class MadeProcess:
    """Answers as `probing.Process` does, from rows.

    Args:
        recorded: Rows of recorded tables, by the table's name; a column that is left out is NULL.
        live: Rows of live tables, or what gives them anew at each look.
        stacks: What sampling it shows: frames, from the outside in, and how often.
        is_silent: Whether it answers nothing live.
        is_here: Whether it runs on this machine.
        pace: Steps that end before each query.
        notes: What the agent says of the gradients of the steps that it is asked for.
    """

    def __init__(
        self,
        recorded: Mapping[str, Sequence[Row]],
        live: Live,
        *,
        labels: LabelsAnswer | None = None,
        stacks: Sequence[Stack] | None = None,
        is_silent: bool = False,
        is_here: bool = False,
        pace: int = 0,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._notes = notes
        self._labels, self._stacks = labels, stacks
        self.folder = _Here() if is_here or stacks is not None else None
        self._live, self._is_silent, self._pace = live, is_silent, pace
        self.asked: list[str] = []
        self.queries = 0
        self._recorded = recorded
        self._made: set[str] = set()

    @functools.cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        """One of its own, in the engine of all: to start an engine takes longer than most rules."""
        database, name = _ENGINE.cursor(), f"made_{next(_NUMBERS)}"
        database.execute(f"ATTACH ':memory:' AS {name}; USE {name}")
        database.execute("CREATE SCHEMA python; CREATE SCHEMA probing")
        return database

    def _make(self, names: Iterable[str]) -> None:
        """Make the recorded tables of these names that are not there yet."""
        for name in {name for name in names if name in _TABLES} - self._made:
            rows = self._recorded.get(_TABLES[name].name, ())
            if rows:
                self._insert(name, [{"seq": n, **row} for n, row in enumerate(rows, 1)])
            else:
                self._database.execute(_declaration(name))
            self._made.add(name)

    def _insert(self, name: str, rows: Sequence[Row]) -> None:
        """Make a table of rows, in one statement: that costs a thousand times what a row does."""
        columns, given = _columns(name), dict[str, Any]()
        for row in rows:
            given.update(row)
        unknown = given.keys() - columns.keys()
        assert unknown <= {"seq"}, f"{name} has no {unknown}"
        # The engine finds it by its name.
        told = pa.table({c: [row.get(c) for row in rows] for c in given if c in columns})  # noqa: F841
        self._database.execute(f"{_declaration(name)}; INSERT INTO {name} BY NAME FROM told")

    def query(self, sql: str) -> _Rows:
        """The rows of a query."""
        self.queries += 1
        self._make(re.findall(r"\b(?:python|probing)\.\w+", sql))
        if self._pace and "python.steps" in self._made:
            self._go_on()
        try:
            found = self._database.execute(sql)
        except duckdb.BinderException as error:
            raise SqlError(str(error)) from error
        names = [description[0] for description in found.description or ()]
        return _Rows([dict(zip(names, row, strict=True)) for row in found.fetchall()])

    def _go_on(self) -> None:
        """Make some more steps."""
        sql = (
            "SELECT max(step) + n + 1 AS step, 0.1 AS duration FROM python.steps, range(?) AS r(n)"
        )
        self._database.execute(
            f"INSERT INTO python.steps BY NAME ({sql} GROUP BY n)",
            [self._pace],
        )

    def live(self, table: str, **_: object) -> _Rows:
        """The rows of a live table."""
        self.asked.append(table)
        if self._is_silent:
            raise NotAnswering("1", 8.0)
        rows = self._live.get(table, ())
        return _Rows([dict(row) for row in (rows() if callable(rows) else rows)])

    def sample(self, *_: object, **__: object) -> object:
        """Where its threads were."""
        return _Sampled(self._stacks or ())

    def armed(self) -> ArmedAnswer:
        """Nothing is in hand for anybody else."""
        return ArmedAnswer(armed=())

    def arm(self, what: str, steps: int, **_: object) -> ArmedAnswer:
        """What is armed is over at once: its rows are in the record."""
        found = self.query("SELECT min(step) AS first, max(step) AS last FROM python.gradients")
        first, last = found.to_pylist()[0].values()
        armed = Armed(
            what=what, number=1, state="over", steps=steps, done=steps, first_step=first,
            last_step=last, found=1, still_s=0.0, notes=self._notes,
        )  # fmt: skip
        return ArmedAnswer(armed=(armed,))

    def labels(self, **_: object) -> object:
        """Those of the next batch."""
        if self._labels is None:
            raise NoLabels("no batch has labels")
        return self._labels


def facts(
    recorded: Mapping[str, Sequence[Row]] | None = None,
    live: Live | None = None,
    *,
    verdict: Verdict = FINE,
    labels: LabelsAnswer | None = None,
    stacks: Sequence[Stack] | None = None,
    is_alive: bool = True,
    is_silent: bool = False,
    is_here: bool = False,
    pid: int = 1,
    proc: str = "/proc",
    live_s: float = DEADLINE_S,
    pace: int = 0,
    notes: tuple[str, ...] = (),
) -> Facts:
    """The facts of a process with such a record and such answers."""
    process: Any = MadeProcess(
        recorded or {},
        live or {},
        labels=labels,
        stacks=stacks,
        is_silent=is_silent,
        is_here=is_here,
        pace=pace,
        notes=notes,
    )
    member = Member(
        rank=None, host="here", pid=pid, world_size=None, endpoint="1", is_alive=is_alive
    )
    return Facts(process, member, verdict, live_s=live_s, proc=proc)


def signs(name: str, of: Facts) -> list[Sign]:
    """What the rule of that name finds."""
    rule = next(rule for rule in RULES if rule.name == name)
    return list(rule.look(of))


def steps(count: int, **columns: Any) -> list[dict[str, Any]]:
    """Rows of python.steps: of each column a value for all, or a function of the step's number."""
    base: dict[str, Any] = {
        "duration": 0.1,
        "forward_s": 0.04,
        "backward_s": 0.04,
        "optimizer_s": 0.02,
        "cpu_s": 0.1,
        "involuntary_switches": 0,
        "optimizer": "SGD",
        "loss": lambda step: 2.0 * 0.99**step + 0.5 + 0.02 * ((7 * step) % 5 - 2),
        "loss_finite": True,
        "failed": False,
    }
    base.update(columns)
    varied = {name: value for name, value in base.items() if callable(value)}
    made = []
    for step in range(count):
        row = {**base, **{name: value(step) for name, value in varied.items()}}
        made.append({"step": step, "start_ns": 1_000_000_000 * (10 + step), **row})
    return made


__all__ = ["ALL_RULES", "FINE", "Facts", "facts", "signs", "steps"]
