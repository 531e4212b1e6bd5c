"""Which files a statement over a history opens: those that may have rows of its answer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from probing.errors import SqlError
from probing.history.export import export_process
from probing.history.query import History
from probing.history.scanning import views
from probing.history.scanning.folder import FolderFiles
from probing.tables import TABLES_BY_NAME
from tests.harness.ring_writer import RingWriter, trace_values
from tests.history.conftest import ended_in

pytestmark = pytest.mark.anypython

DAY_NS = 86_400 * 10**9
FILES = 12
FIRST_NS = 1_700_000_000_000_000_000
"""When the first run began: 2023-11-14."""


class Opened(FolderFiles):
    """Remembers the files of a table that were opened."""

    def __init__(self, place: str, table: str) -> None:
        super().__init__(place)
        self.table = table
        self.opened: list[str] = []

    def rows(self, connection: Any, table: str, files: Sequence[str]) -> tuple[str, list[str]]:
        """See `source.Source`."""
        if table == self.table:
            self.opened = list(files)
        return super().rows(connection, table, files)


Ask = Callable[[str], tuple[list[dict[str, Any]], int]]


class Kept(NamedTuple):
    """A history, and the names of its runs."""

    root: Path
    runs: list[str]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Runs of three projects, each exported on its day; each has a file of its module rows."""
    place = tmp_path_factory.mktemp("kept")
    found = Kept(place / "it's [a] history*", [])
    for number in range(FILES):
        since = 3 * number * DAY_NS
        begun = FIRST_NS + since
        job, project = (None, "llm")[number % 2], ("a b", "it's", "vision")[number % 3]
        folder = ended_in(place, 77 + number, started_ns=begun, job=job, rank=number % 2 or None)
        writer = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=64)
        for row in range(10 + number):
            writer.write(**{**trace_values(row), "start_ns": since + row})
        writer.save(folder.ring("torch_trace"))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(time, "time_ns", lambda begun=begun: begun + DAY_NS // 8)
            found.runs.append(export_process(folder, found.root, project=project).run)
    return found


@pytest.fixture
def runs(kept: Kept) -> list[str]:
    """The names of the runs."""
    return kept.runs


@pytest.fixture
def ask(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Rows of a statement, and how many files of module rows it opened; they are as with all."""

    def rows(sql: str, few: int) -> tuple[list[dict[str, Any]], int]:
        monkeypatch.setattr(views, "_FEW", few)
        history = History(str(kept.root))
        history.source = opened = Opened(str(kept.root), "torch_trace")
        return history.query(sql, timeout_s=60).to_pylist(), len(opened.opened)

    def ask(sql: str) -> tuple[list[dict[str, Any]], int]:
        found, opened = rows(sql, 0)
        whole, of_all = rows(sql, 10**6)
        assert (found, of_all) == (whole, FILES)
        return found, opened

    return ask


GROUPED = (
    "SELECT run, project, job, day, count(*) AS n FROM torch_trace t WHERE {}"
    " GROUP BY ALL ORDER BY ALL"
)
CONDITIONS = {
    "run = '{run}'": 1,
    "t.run = '{run}' AND step > 1": 1,
    "'{run}' = torch_trace.run": None,  # an error: the table has another name there
    "run IN ('{run}', '{other}')": 2,
    "run = '{run}' OR run = '{other}' AND rank = 1": 2,
    "run = '{run}' OR step = 1": 12,
    "run LIKE '{run}%'": 12,
    "NOT run = '{run}'": 12,
    "run <> '{run}'": 12,
    "run = 'nobody'": 12,
    "run = '{run}' AND run = '{other}'": 0,
    "day = '2023-11-17'": 1,
    "day >= '2023-11-17' AND day < '2023-11-21'": 2,
    "day BETWEEN '2023-11-17' AND '2023-11-20'": 12,
    "'2023-11-17' >= day": 2,
    "project = 'it''s'": 4,
    "project IN ('a b', 'vision') AND day > '2023-12-01'": 4,
    "job = 'llm'": 6,
    "job IS NULL": 12,
    "project = 'it''s' AND day = '2023-11-14'": 0,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_only_files_that_may_have_rows_are_opened(
    condition: str, ask: Ask, runs: list[str]
) -> None:
    """By what the WHERE says of runs, days, projects and jobs; the answer is as with all files."""
    sql = GROUPED.format(condition.format(run=runs[1], other=runs[4]))
    needed = CONDITIONS[condition]
    if needed is None:
        with pytest.raises(SqlError, match="torch_trace"):
            ask(sql)
    else:
        assert ask(sql)[1] == needed


COUNT = "SELECT count(*) AS n FROM torch_trace"
STATEMENTS = {
    COUNT: 12,
    f"WITH steps AS (FROM torch_trace WHERE run = '{{run}}') {COUNT[:-11]}steps": 1,
    COUNT + " WHERE run = (SELECT run FROM processes WHERE run = '{run}')": 12,
    COUNT + " a JOIN torch_trace b USING (run, seq) WHERE run = '{run}'": 1,
    COUNT + " a JOIN torch_trace b USING (seq) WHERE a.run = '{run}'": 12,
    COUNT + " a LEFT JOIN torch_trace b ON a.seq = b.seq AND a.run = b.run"
    " WHERE b.run = '{run}' AND a.project = 'vision'": 5,
    COUNT + " a ASOF JOIN torch_trace b ON a.start_ns >= b.start_ns"
    " WHERE a.run = '{run}' AND b.run = '{run}'": 12,
    COUNT + " AS t(run, project) WHERE run = 'x'": 12,
    COUNT + " TABLESAMPLE 100 PERCENT WHERE run = '{run}'": 12,
    "SELECT (SELECT count(*) FROM torch_trace WHERE run = p.run) AS n FROM processes p"
    " WHERE p.run = '{run}'": 12,
    "SELECT count(*) AS n FROM (FROM torch_trace WHERE run = '{run}') q WHERE step > 0": 1,
    COUNT + " WHERE run = '{run}' UNION ALL " + COUNT + " WHERE day = '2023-11-14'": 2,
    "SELECT count(*) AS n FROM python.torch_trace WHERE python.torch_trace.run = '{run}'": 1,
    "SELECT count(*) FILTER (WHERE run = '{run}') AS n FROM torch_trace": 12,
    "FROM query_table('torch_trace') SELECT count(*) AS n WHERE run = '{run}'": 12,
}


@pytest.mark.parametrize("sql", STATEMENTS)
def test_each_place_that_reads_a_table_counts(sql: str, ask: Ask, runs: list[str]) -> None:
    """A file is passed over where no place needs it; joins that look for the nearest need all."""
    assert ask(sql.format(run=runs[1]))[1] == STATEMENTS[sql]


def test_whatever_the_conditions_are_no_row_is_lost(ask: Ask, runs: list[str]) -> None:
    """Statements that are made up have the rows that they have of all files."""
    made = random.Random(7)
    texts = {"run": runs, "day": [f"2023-11-{day}" for day in range(14, 31)]}
    texts |= {"project": ["a b", "it''s", "vision"], "job": ["llm", "other"]}

    def condition(depth: int) -> str:
        if depth and made.random() < 0.6:
            inner = f" {made.choice(['AND', 'OR'])} ".join(condition(depth - 1) for _ in range(2))
            return f"{made.choice(['', '', 'NOT '])}({inner})"
        column = made.choice(sorted(texts))
        how = made.choice(["=", "=", "=", "<", "<=", ">", ">=", "<>", "IN"])
        few = ", ".join(f"'{made.choice(texts[column])}'" for _ in range(2))
        return f"{column} IN ({few})" if how == "IN" else f"{column} {how} {few.split(', ')[0]}"

    opened = [ask(GROUPED.format(condition(2)))[1] for _ in range(25)]
    assert min(opened) < 6
    assert max(opened) == 12
