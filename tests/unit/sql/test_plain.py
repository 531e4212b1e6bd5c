# ruff: noqa: E501 - statements in one line each
"""Rows in Python's own values are written as those of Arrow are, without the libraries of either."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from probing.cli.ask.answering import Question, write_rows
from probing.cli.output import terminal
from probing.cli.render.rows import TEXT_WRITERS
from probing.errors import SqlError
from probing.sql.engine import Engine
from probing.sql.plain import PlainAnswer, run_plain

_ENDS = {
    name: (f"-({2 ** (bits - 1) - 1})", f"{2 ** (bits - 1) - 1}")
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64))
}
_PLAIN = [
    *(f"SELECT x::{name} x FROM (VALUES ({a}), (0), (NULL), ({b})) t(x)" for name, (a, b) in _ENDS.items()),
    *(f"SELECT x::{name} x FROM (VALUES (0), (200), (NULL)) t(x)" for name in ("UTINYINT", "UBIGINT")),
    "SELECT 18446744073709551615::UBIGINT a, 4294967295::UINTEGER b, 65535::USMALLINT c",
    "SELECT sum(i) total, count(*) n, avg(i) mean FROM range(10) t(i)",
    "SELECT 170141183460469231731687303715884105727::HUGEINT a, 0::HUGEINT b, NULL::HUGEINT c",
    "SELECT '-170141183460469231731687303715884105728'::HUGEINT a, (10::HUGEINT ** 30)::HUGEINT b",
    "SELECT x::DOUBLE x FROM (VALUES ('nan'), ('inf'), ('-inf'), ('-0'), ('1e300'), ('5e-324'), (NULL),"
    " ('0.1'), ('123456789.125'), ('1e16'), ('100000')) t(x)",
    "SELECT x::FLOAT x FROM (VALUES ('nan'), ('0.1'), ('3.4e38'), (NULL), ('1e-45')) t(x)",
    "SELECT 1.50 a, 0.0000001 b, 0.0000000 z, -12345678901234567890.123 c, 0.00 d, NULL::DECIMAL(9, 3) e",
    "SELECT 12::DECIMAL(18, 0) a, 99999999999999999999999999999999999999::DECIMAL(38, 0) b",
    "SELECT 0.00000000000000000000000000000000000001::DECIMAL(38, 38) a, 100::DECIMAL(5, 0) b",
    "SELECT true a, false b, NULL::BOOLEAN c, NULL d",
    "SELECT x FROM (VALUES (''), (' a '), ('a,b'), ('\"q\"'), (NULL), ('a|b'), ('ä\u4f60'), (chr(10)),"
    " (chr(27) || '[31m'), ('back\\slash'), (chr(0)), ('\U0001f600'), (chr(8232)), (repeat('x', 300))) t(x)",
    "SELECT '\\x00\\xFFabc'::BLOB a, ''::BLOB b, NULL::BLOB c",
    'SELECT 1 AS a, 2 AS a, 3 AS "a b", 4 AS "100%", 5 AS """"',
    "SELECT i FROM range(20000) t(i)",
    "SELECT 1 a WHERE false",
    "EXPLAIN SELECT 1",
    "SHOW TABLES",
    "DESCRIBE SELECT 1 a",
    "FROM range(3)",
    "-- a comment\nSELECT 1 a; ",
    "(SELECT 1 a) UNION ALL SELECT 2",
    "WITH t AS (SELECT 7 a) SELECT * FROM t",
    "PRAGMA version",
]  # fmt: skip
_BY_ARROW = [
    "SELECT TIMESTAMP '2024-01-02 03:04:05.678' a, DATE '2024-01-02' b, TIME '03:04:05' c",
    "SELECT INTERVAL 3 MONTH a, [1, 2] b, {'x': 1, 'y': 'z'} c, MAP {'k': 2} d",
    "SELECT to_timestamp(1.5) a, 1 b, uuid() IS NULL c",
    "PIVOT (SELECT 1 a, 2 b) ON a USING sum(b)",
]


@pytest.fixture(autouse=True)
def _fresh_ways() -> Iterator[None]:
    """What a terminal was told is forgotten."""
    yield
    terminal.ways.__init__()  # type: ignore[misc]


def _written(answer: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> dict[str, bytes]:
    """What a command writes of an answer, by format."""
    with answer:
        schema, batches = answer.schema, list(answer.batches())
    found = {}
    for form in sorted(TEXT_WRITERS):
        question = Question(sql="", form=form, output=None, max_rows=0, screen=terminal.PLAIN)
        write_rows(schema, batches, question)
        found[form] = capfdbinary.readouterr().out
    return found


@pytest.mark.parametrize("sql", [*_PLAIN, *_BY_ARROW])
def test_both_ways_write_the_same(sql: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Every text format has the same bytes whichever way the rows came."""
    engine = Engine([])
    plain = run_plain(engine, sql, timeout_s=60)
    assert isinstance(plain, PlainAnswer) == (sql in _PLAIN)
    ours = _written(plain, capfdbinary)
    assert ours == _written(engine.run(sql, timeout_s=60), capfdbinary)


def test_limits_and_refusals_are_those_of_arrow() -> None:
    """A cut answer says so, an unsigned number of 128 bits is refused, an error comes at once."""
    engine = Engine([])
    with run_plain(engine, "FROM range(100000)", timeout_s=60, max_rows=9000) as answer:
        assert sum(batch.num_rows for batch in answer.batches()) == 9000
        assert answer.truncated == "The answer was cut after 9,000 rows: its limit is 9,000 rows."
    with pytest.raises(SqlError, match="UHUGEINT"):
        run_plain(engine, "SELECT 1::UHUGEINT a", timeout_s=60)
    with pytest.raises(SqlError):
        run_plain(engine, "SELECT error('no')", timeout_s=60)


def test_constants_load_no_library_of_arrays() -> None:
    """A statement of plain types is answered by the engine alone."""
    heavy = {"duckdb", "numpy", "pyarrow", "rich", "ssl", "pandas", "aiohttp"}
    code = (
        "import sys; from probing.sql.engine import Engine; from probing.sql.plain import run_plain\n"
        "assert list(run_plain(Engine([]), 'SELECT 1 a, 2.5 b', timeout_s=60).batches())\n"
        f"print(sorted({heavy!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
