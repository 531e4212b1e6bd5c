"""Records and answers made by hand, asked as a process is.

The recorded tables are real ones of DuckDB, made from the declarations, so that each query of a
rule runs as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from probing.cli.render.process.catalog import sql_type
from probing.cluster.job.membership import Member
from probing.diagnosis.doctor.examine import ALL_RULES, RULES
from probing.diagnosis.doctor.facts import Facts
from probing.diagnosis.doctor.findings import Sign
from probing.diagnosis.hang.evidence import Verdict
from probing.errors import NoLabels, NotAnswering
from probing.messages.labels import LabelsAnswer
from probing.tables import TABLES

Row = Mapping[str, Any]
_AT_ONCE = 100

FINE = Verdict(kind="healthy", is_hang=False, headline="No hang: process 1 moved.")


class _Rows:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def to_pylist(self) -> list[dict[str, Any]]:
        return self._rows

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self._rows]


class MadeProcess:
    """Answers as `probing.Process` does, from rows.

    Args:
        recorded: Rows of recorded tables, by the table's name; a column that is left out is NULL.
        live: Rows of live tables.
        is_silent: Whether it answers nothing live.
    """

    folder = None

    def __init__(
        self,
        recorded: Mapping[str, Sequence[Row]],
        live: Mapping[str, Sequence[Row]],
        *,
        labels: LabelsAnswer | None = None,
        is_silent: bool = False,
    ) -> None:
        self._labels = labels
        self._live, self._is_silent = live, is_silent
        self.asked: list[str] = []
        self._database = duckdb.connect()
        for schema in ("python", "probing"):
            self._database.execute(f"CREATE SCHEMA {schema}")
        for table in TABLES:
            if table.kind == "recorded":
                columns = ", ".join(f'"{c.name}" {sql_type(c)}' for c in table.columns)
                self._database.execute(f"CREATE TABLE {table.full_name} ({columns})")
                rows = recorded.get(table.name, ())
                self._insert(table.full_name, [{"seq": n, **row} for n, row in enumerate(rows, 1)])

    def _insert(self, name: str, rows: Sequence[Row]) -> None:
        """Insert rows, many at a time: a statement costs a thousand times what a row does."""
        known = {d[0] for d in self._database.execute(f"FROM {name} LIMIT 0").description or ()}
        for row in rows:
            assert set(row) - known <= {"seq"}, f"{name} has no {set(row) - known}"
        columns = [column for column in dict.fromkeys(c for row in rows for c in row)
                   if column in known]  # fmt: skip
        names, marks = ", ".join(f'"{column}"' for column in columns), ", ".join("?" * len(columns))
        for start in range(0, len(rows), _AT_ONCE):
            piece = rows[start : start + _AT_ONCE]
            self._database.execute(
                f"INSERT INTO {name} ({names}) VALUES " + ", ".join([f"({marks})"] * len(piece)),
                [row.get(column) for row in piece for column in columns],
            )

    def query(self, sql: str) -> _Rows:
        """The rows of a query."""
        found = self._database.execute(sql)
        names = [description[0] for description in found.description or ()]
        return _Rows([dict(zip(names, row, strict=True)) for row in found.fetchall()])

    def live(self, table: str, **_: object) -> _Rows:
        """The rows of a live table."""
        self.asked.append(table)
        if self._is_silent:
            raise NotAnswering("1", 8.0)
        return _Rows([dict(row) for row in self._live.get(table, ())])

    def labels(self, **_: object) -> object:
        """Those of the next batch."""
        if self._labels is None:
            raise NoLabels("no batch has labels")
        return self._labels


def facts(
    recorded: Mapping[str, Sequence[Row]] | None = None,
    live: Mapping[str, Sequence[Row]] | None = None,
    *,
    verdict: Verdict = FINE,
    labels: LabelsAnswer | None = None,
    is_alive: bool = True,
    is_silent: bool = False,
) -> Facts:
    """The facts of a process with such a record and such answers."""
    process: Any = MadeProcess(recorded or {}, live or {}, labels=labels, is_silent=is_silent)
    member = Member(rank=None, host="here", pid=1, world_size=None, endpoint="1", is_alive=is_alive)
    return Facts(process, member, verdict)


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
    made = []
    for step in range(count):
        row = {name: value(step) if callable(value) else value for name, value in base.items()}
        made.append({"step": step, "start_ns": 1_000_000_000 * (10 + step), **row})
    return made


__all__ = ["ALL_RULES", "FINE", "Facts", "facts", "signs", "steps"]
