"""SQL reads the tables and nothing else, loads only what it needs, and ends in time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import types
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from probing.errors import (
    NotAnswering,
    ProbingError,
    QueryTimedOut,
    RequestTooLarge,
    SqlError,
    SqlRefused,
    SqlTooLarge,
)
from probing.ring.arrow_tables import RecordedTable, schema_of
from probing.script.own_tables import declaration
from probing.sql import session
from probing.sql.engine import Engine
from probing.sql.scans import Scan, named_in
from probing.tables import RECORDED_TABLES, THREADS
from tests.faults import Reached
from tests.harness.sql_attacks import ATTACKS
from tests.harness.sql_fixtures import (
    WatchedTable,
    recorded_folder,
    watched_backtrace,
    watched_steps,
    watched_trace,
)
from tests.harness.targets import DEADLINE_S, ROOT, wait_until

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 3"
LONG_S = DEADLINE_S

SEED_QUERIES = [
    "SELECT func, file, lineno, depth FROM python.backtrace ORDER BY depth LIMIT 10",
    """
SELECT
    module,
    stage,
    COUNT(*) as count,
    AVG(duration) as avg_time,
    SUM(duration) as total_time
FROM python.torch_trace
WHERE step > (SELECT MAX(step) - 5 FROM python.torch_trace)
GROUP BY module, stage
ORDER BY total_time DESC
LIMIT 10""",
    """
SELECT
    step,
    MAX(allocated) as peak_memory,
    MAX(allocated) - MIN(allocated) as memory_range
FROM python.torch_trace
WHERE step > (SELECT MAX(step) - 20 FROM python.torch_trace)
GROUP BY step
ORDER BY step""",
]


def engine_with(*tables: WatchedTable, memory_mib: int = 256) -> Engine:
    """An engine over tables in memory."""
    return Engine(tables, memory_mib=memory_mib)


def rows_of(engine: Engine, sql: str, timeout_s: float = LONG_S) -> list[dict[str, object]]:
    """All rows of a statement."""
    with engine.run(sql, timeout_s=timeout_s) as answer:
        return answer.to_pylist()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ('SELECT count(*) AS n FROM python."STEPS"', 5),
        ("SELECT count(*) AS n FROM query_table('st' || 'eps')", 5),
        ("SELECT count(*) AS n FROM (SHOW ALL TABLES)", 2),
        ("SELECT count(*) AS n FROM information_schema.tables", 2),
    ],
)
def test_a_table_is_there_however_it_is_named(sql: str, rows: int) -> None:
    """Only tables that a statement names get a view, where it names them, and else all do."""
    engine = engine_with(watched_steps(), watched_trace())
    assert rows_of(engine, sql) == [{"n": rows}]


def test_a_table_that_is_not_there_is_answered_with_one_like_it() -> None:
    """The tables that the statement does not name are looked through, too."""
    with pytest.raises(SqlError, match="steps"):
        rows_of(engine_with(watched_steps()), "SELECT * FROM stepz")


@pytest.mark.parametrize("sql", SEED_QUERIES)
def test_the_documented_queries_answer(tmp_path: Path, sql: str) -> None:
    """The queries that users are told to send run as they stand, over recorded rows."""
    folder = recorded_folder(tmp_path)
    recorded = [RecordedTable(table, folder) for table in RECORDED_TABLES]
    assert rows_of(Engine([*recorded, watched_backtrace()]), sql)


def test_an_open_row_is_found_by_its_missing_duration(tmp_path: Path) -> None:
    """What the process is inside of is a row whose duration is NULL."""
    folder = recorded_folder(tmp_path, rows=10)
    engine = Engine([RecordedTable(table, folder) for table in RECORDED_TABLES])
    sql = "SELECT seq, module, failed FROM python.torch_trace WHERE duration IS NULL"
    assert rows_of(engine, sql) == [{"seq": 12, "module": "fc1", "failed": None}]
    assert rows_of(engine, "SELECT seq FROM python.torch_trace WHERE failed") == [{"seq": 11}]


def test_an_answer_without_rows_keeps_its_types() -> None:
    """Zero rows come with the columns and types of the statement."""
    answer = engine_with(watched_trace()).run(
        "SELECT step, duration, module, failed FROM python.torch_trace WHERE step < 0", timeout_s=9
    )
    table = answer.to_arrow()
    assert table.num_rows == 0
    assert [str(field.type) for field in table.schema] == ["int64", "double", "string", "bool"]


LOADING = [
    ("SELECT step FROM python.torch_trace", {"step"}),
    ("FROM python.torch_trace SELECT module WHERE duration > 0.01", {"module", "duration"}),
    ("SELECT max(depth) FROM python.torch_trace GROUP BY stage", {"depth", "stage"}),
    ("WITH t AS (FROM python.torch_trace) SELECT count(DISTINCT module) FROM t", {"module"}),
    ("SELECT t.step FROM python.torch_trace t ORDER BY t.seq DESC LIMIT 3", {"step", "seq"}),
    ("SELECT * FROM query('SELECT class FROM python.torch_trace')", {"class"}),
    ("EXPLAIN ANALYZE SELECT max(step) FROM python.torch_trace", {"step"}),
    ("SELECT module, lag(step) OVER (ORDER BY seq) FROM python.torch_trace",
     {"module", "step", "seq"}),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "columns"), LOADING)
def test_only_the_columns_that_are_read_are_loaded(sql: str, columns: set[str]) -> None:
    """The planner names the columns; no other is loaded, and other tables are not touched."""
    trace, steps = watched_trace(), watched_steps()
    rows_of(engine_with(trace, steps), sql)
    assert trace.loads == [frozenset(columns)]
    assert steps.loads == []


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE python.torch_trace",
        "SHOW ALL TABLES",
        "SELECT * FROM information_schema.columns",
        "SELECT comment FROM duckdb_columns() WHERE schema_name = 'python'",
        "EXPLAIN SELECT * FROM python.torch_trace",
        "SELECT * FROM python.torch_trace WHERE false",
        "SELECT 1",
    ],
)
def test_questions_about_the_catalogue_load_nothing(sql: str) -> None:
    """Names, types and meanings are known without a single row."""
    trace = watched_trace()
    rows_of(engine_with(trace), sql)
    assert trace.loads == []


def test_a_self_join_sees_one_moment() -> None:
    """A table is loaded once per query, however often it is named."""
    trace = watched_trace()
    sql = "SELECT count(*) AS n FROM python.torch_trace a JOIN python.torch_trace b USING (seq)"
    assert rows_of(engine_with(trace), sql) == [{"n": 40}]
    assert len(trace.loads) == 1


AGREEING = [
    "SELECT count(*) FROM python.torch_trace",
    "SELECT count(duration), sum(duration_ns), min(module) FROM python.torch_trace",
    "SELECT * FROM python.torch_trace ORDER BY seq",
    "SELECT t FROM python.torch_trace t ORDER BY t.seq",
    "SELECT * EXCLUDE (module) FROM python.torch_trace ORDER BY seq",
    "SELECT DISTINCT ON (step) step, module FROM python.torch_trace ORDER BY step, seq",
    "SELECT s.step, t.n FROM python.steps s, LATERAL (SELECT count(*) n FROM python.torch_trace t"
    " WHERE t.step = s.step) t ORDER BY 1",
    "FROM python.steps s ASOF JOIN python.torch_trace t ON s.step >= t.step ORDER BY s.seq",
    "WITH RECURSIVE r AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM r, python.steps s"
    " WHERE s.step = r.i) SELECT max(i) FROM r",
    "SELECT module FROM python.torch_trace WHERE step IN (SELECT step FROM python.steps WHERE"
    " duration > 0.15) ORDER BY seq",
    "SELECT module FROM python.torch_trace WHERE depth = 1 INTERSECT SELECT module FROM"
    " python.torch_trace WHERE stage = 'backward' ORDER BY 1",
    "SELECT * FROM (PIVOT python.torch_trace ON stage IN ('forward', 'backward') USING"
    " sum(duration) GROUP BY step) ORDER BY step",
    "PIVOT (SELECT step, stage, depth FROM python.torch_trace) ON stage USING sum(depth)"
    " GROUP BY step ORDER BY step",
    "SELECT arg_max(module, duration) FROM python.torch_trace",
    "SELECT struct_pack(*COLUMNS(*)) AS s FROM python.steps ORDER BY s",
    "SUMMARIZE python.steps",
    "SELECT EXISTS (FROM python.torch_trace WHERE failed)",
    "FROM query_table('python.steps')",
    "SELECT 1 FROM python.steps POSITIONAL JOIN python.torch_trace",
]


@pytest.mark.parametrize("sql", AGREEING)
def test_leaving_columns_out_changes_no_answer(sql: str) -> None:
    """An answer over only the needed columns is the answer over all of them."""

    class Whole(WatchedTable):
        def load(self, columns: frozenset[str] | None) -> pa.Table:
            return super().load(None)

    narrow = [watched_trace(), watched_steps()]
    whole = [Whole(table.table, table.rows) for table in narrow]
    assert rows_of(engine_with(*narrow), sql) == rows_of(engine_with(*whole), sql)


def test_the_catalogue_explains_tables_and_columns() -> None:
    """Comments of views and columns are the declared sentences; any word may be a table's name."""
    own = declaration(
        "order", {"select": int}, doc="it's", rows=9, text_bytes=8, origin="script"
    ).declared
    engine = engine_with(watched_steps(), WatchedTable(own, schema_of(own).empty_table()))
    asked = "SELECT comment FROM duckdb_views() WHERE schema_name = 'python' ORDER BY view_name"
    rows = rows_of(engine, asked)
    assert rows == [{"comment": "it's"}, {"comment": watched_steps().table.doc}]


def test_a_tables_own_error_reaches_the_asker_unchanged() -> None:
    """A live table that cannot answer ends the query with its own error."""

    class Silent:
        table = THREADS

        def load(self, columns: frozenset[str] | None) -> pa.Table:
            raise NotAnswering("process 7", 2.0)

    engine = Engine([Silent(), watched_steps()])
    assert rows_of(engine, "SELECT step FROM python.steps LIMIT 1") == [{"step": 0}]
    with pytest.raises(NotAnswering, match="process 7 did not answer"):
        rows_of(engine, "FROM python.threads")


@pytest.mark.fault("Q1")
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_does_not_only_read_tables_is_refused(
    tmp_path: Path, attack: str, fault: Reached
) -> None:
    """Files, network, settings and writes are refused with a sentence, and leave no trace."""
    file, new = tmp_path / "secret.csv", tmp_path / "new"
    file.write_text("a,b\n1,secret\n")
    engine = engine_with(watched_steps())
    with pytest.raises(SqlError) as caught:
        rows_of(engine, attack.format(file=file, new=new))
    expected = "sql" if "INSERT" in attack else "sql_refused"
    case = " ".join(attack.split()) or "nothing"
    fault.holds(case, expected, caught.value.code, is_kept=expected in caught.value.code)
    assert not new.exists()
    assert "secret\n" not in str(caught.value)
    assert rows_of(engine, "SELECT count(*) AS n FROM python.steps") == [{"n": 5}]


@pytest.mark.parametrize("name", ["local_rows", "GLOBAL_ROWS", "python.local_rows"])
def test_variables_of_the_program_are_no_tables(name: str) -> None:
    """SQL cannot reach Python objects of the process that runs it."""
    local_rows = GLOBAL_ROWS
    with pytest.raises(SqlError, match="there is no table"):
        rows_of(engine_with(), f"FROM {name}")
    assert local_rows.num_rows == 1


GLOBAL_ROWS = pa.table({"secret": [1]})


def test_one_query_cannot_poison_the_next() -> None:
    """Each query has a database of its own."""
    engine = engine_with(watched_steps())
    with pytest.raises(SqlRefused):
        rows_of(engine, "CREATE OR REPLACE MACRO count(x) AS 5")
    assert rows_of(engine, "SELECT count(step) AS n FROM python.steps") == [{"n": 5}]


@pytest.mark.parametrize(
    "sql",
    [
        "SHOW TABLES",
        "SHOW ALL TABLES",
        "DESCRIBE",
        "DESCRIBE steps",
        "PRAGMA show_tables",
        "pragma -- a comment\n table_info('steps')",
        "VALUES (1)",
        "(SELECT 1)",
        "SUMMARIZE python.steps",
        "EXPLAIN (FORMAT json) SELECT 1",
        "EXPLAIN -- a comment\n ANALYZE SELECT 1",
        "/* a comment */ SELECT 1 ;",
        "/***/ PRAGMA /* ** a\n* / */ show_tables",
        "TABLE python.steps",
        "PIVOT python.steps ON step USING count(*)",
        "PIVOT (FROM python.steps WHERE optimizer <> 'enable_logging') ON step USING count(*)",
        "SELECT 'checkpoint(' AS enable_logging FROM python.steps",
    ],
)
def test_every_reading_form_runs(sql: str) -> None:
    """What only reads is not refused, whatever its first word is."""
    with engine_with(watched_steps()).run(sql, timeout_s=LONG_S) as answer:
        answer.to_arrow()


def test_a_text_over_the_limit_is_refused() -> None:
    """SQL of more than 64 KiB is not even parsed."""
    with pytest.raises(RequestTooLarge):
        rows_of(engine_with(), "SELECT 1" + " " * (64 << 10))


def test_a_text_that_is_no_unicode_is_refused() -> None:
    """A lone surrogate is an error of the statement."""
    with pytest.raises(SqlError, match="not valid Unicode"):
        rows_of(engine_with(), "SELECT '\ud800'")


def test_an_endless_query_ends_at_its_limit() -> None:
    """The time limit ends it."""
    started = time.monotonic()
    with pytest.raises(QueryTimedOut, match=r"0\.5 s"):
        rows_of(engine_with(), ENDLESS, timeout_s=0.5)
    assert time.monotonic() - started < 15, "by itself it would take hours"


def test_the_limit_holds_while_rows_are_streamed() -> None:
    """A query that gives its first rows at once and then never ends is stopped as well."""
    sql = (
        "SELECT range FROM range(100000) UNION ALL"
        " SELECT a.range FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 3"
    )
    with pytest.raises(QueryTimedOut):
        engine_with().run(sql, timeout_s=1.0).to_arrow()


def test_the_readers_own_time_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer slower than the limit still gets its whole answer."""
    taken = [0.0]
    later = types.SimpleNamespace(monotonic=lambda: time.monotonic() + sum(taken))
    monkeypatch.setattr(session, "time", later)
    answer = engine_with().run("SELECT range FROM range(300000)", timeout_s=DEADLINE_S)
    rows = 0
    for batch in answer.batches():
        rows += batch.num_rows
        taken.append(DEADLINE_S)
    assert rows == 300_000
    assert len(taken) > 4


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM (SELECT DISTINCT range FROM range(100000000))",
        "SELECT list(range) FROM range(100000000)",
        "SELECT range FROM range(100000000) ORDER BY hash(range)",
    ],
)
def test_a_query_that_needs_too_much_memory_is_ended(sql: str) -> None:
    """The memory limit holds, and its error says what to do."""
    with pytest.raises(SqlTooLarge, match="64 MiB"):
        rows_of(engine_with(memory_mib=64), sql)


@pytest.mark.parametrize(
    ("limits", "rows", "cut"),
    [
        ({"max_rows": 5}, 5, "after 5 rows: its limit is 5 rows"),
        ({"max_rows": 70_000}, 70_000, "after 70,000 rows"),
        ({"max_rows": 0}, 0, "after 0 rows"),
        ({"max_rows": 200_000}, 200_000, None),
        ({"max_rows": 65_536}, 65_536, "after 65,536 rows"),
        ({"max_bytes": 1}, 0, "after 0 rows: its limit is 1 bytes"),
        ({"max_bytes": 2_000_000}, 200_000, None),
    ],
)
def test_an_answer_over_its_limits_is_cut_and_says_so(
    limits: dict[str, int], rows: int, cut: str | None
) -> None:
    """Rows beyond a limit are missing and `truncated` says why; at the limit nothing is cut."""
    answer = engine_with().run("SELECT range FROM range(200000)", timeout_s=LONG_S, **limits)
    assert answer.to_arrow().num_rows == rows
    assert cut in answer.truncated if cut and answer.truncated else answer.truncated is cut


def test_an_answer_fills_its_byte_limit() -> None:
    """The cut leaves as many rows as fit, and no more."""
    answer = engine_with().run("FROM range(200000)", timeout_s=LONG_S, max_bytes=1_000_000)
    assert 950_000 < answer.to_arrow().nbytes <= 1_000_000


def test_ctrl_c_stops_a_query() -> None:
    """A keyboard interrupt ends the wait at once instead of after the query."""
    program = (
        "import os, signal, threading, time\n"
        "from probing.sql import session\n"
        "from probing.sql.database import load_whole\n"
        "from probing.sql.engine import Engine\n"
        "load_whole()\n"
        "began = []\n"
        "def is_long(steps):\n"
        "    time.sleep(0.5)\n"
        "    return any(step and not step.done.is_set() for step in steps)\n"
        "def interrupt():\n"
        "    while not is_long([one._current for one in tuple(session._OPEN)]):\n"
        "        pass\n"
        "    began.append(time.monotonic())\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try:\n"
        f"    Engine([]).run({ENDLESS!r}, timeout_s=60)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', time.monotonic() - began[0] < 20)\n"
    )
    done = run_program(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted True\n", "")


@pytest.mark.parametrize(
    "ending",
    [
        "answer.to_arrow()",
        "pass",
        "next(answer.batches())",
        "rest = answer.batches(); next(rest)",
        "import sys; sys.exit(0)",
        "threading.Thread(target=read, daemon=True).start()",
    ],
)
def test_the_interpreter_ends_silently(ending: str) -> None:
    """Whatever state an answer is in when the program ends, nothing is printed and exit is 0."""
    done = run_program(
        "import threading\n"
        "from contextlib import suppress\n"
        "from probing.sql.engine import Engine\n"
        "sql = 'SELECT a.range FROM range(100000) a, range(100000) b LIMIT 3000000'\n"
        "answer = Engine([]).run(sql, timeout_s=60)\n"
        "def read():\n"
        "    with suppress(Exception):\n"
        "        answer.to_arrow()\n"
        f"{ending}\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    """Run a short program against this tree."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PROBING": "0"},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


def test_no_thread_is_left_behind() -> None:
    """After an answer is read, failed or closed, its thread and database are gone."""
    import threading

    before = set(threading.enumerate())  # of tests that were not read to their end
    engine = engine_with(watched_steps())
    rows_of(engine, "SELECT 1")
    engine.run("FROM range(1000000)", timeout_s=LONG_S).close()
    with pytest.raises(ProbingError):
        rows_of(engine, "SELEC")

    def is_none_left() -> bool:
        left = set(threading.enumerate()) - before
        return not any(thread.name.startswith("probing") for thread in left)

    wait_until(is_none_left, "the end of its threads, which need a processor for that")


def test_the_tested_engine_is_of_a_supported_version() -> None:
    """DuckDB 1.5 and 2.x are supported; this run proves it for one of them."""
    assert re.match(r"1\.5|2\.", duckdb.__version__)


@pytest.mark.parametrize(
    ("sql", "is_all"),
    [
        ("SELECT step FROM steps ORDER BY step DESC LIMIT 1", False),
        ("SELECT step FROM (SELECT * FROM steps ORDER BY a, b desc) WHERE step > 1", False),
        ('SELECT step FROM steps ORDER BY "step" DESC NULLS LAST', False),
        ("SELECT row_number() OVER (ORDER BY start_ns DESC) FROM steps", False),
        ("FROM steps ORDER BY sum(loss)\n  DESC", False),
        ("FROM steps ORDER BY step DESC -- the newest first\nLIMIT 3", False),
        ("FROM steps ORDER BY step DESC FETCH FIRST 3 ROWS ONLY", False),
        ("FROM steps /* show */ WHERE a LIKE '%query%' AND b = 'pg_0' AND query > 1", False),
        ("FROM query_table('st' || 'eps')", True),
        ("FROM pg_catalog.pg_class", True),
        ("DESC", True),
        ("DESC steps", True),
        ("FROM (DESC steps) ORDER BY 1 DESC", True),
        ("-- by\nDESC", True),
        ("SHOW TABLES", True),
    ],
)
def test_no_order_and_no_text_asks_for_a_description(
    sql: str, is_all: bool, tmp_path: Path
) -> None:
    """Only what may ask for any table has all of them made ready."""
    folder = recorded_folder(tmp_path)
    scans = [Scan(RecordedTable(table, folder)) for table in RECORDED_TABLES]
    found = [scan.name for scan in named_in(scans, sql)]
    assert (len(found) == len(scans)) is is_all
    assert is_all or found == ["steps"]
