"""DuckDB's errors come out as one sentence of ours, with the place and a way out."""

from __future__ import annotations

import pytest

from probing.errors import (
    InternalError,
    ProbingError,
    QueryTimedOut,
    SqlError,
    SqlRefused,
    SqlTooLarge,
)
from probing.sql.engine import Engine
from probing.sql.errors import SqlContext, translate
from probing.tables import STEPS, TORCH_TRACE
from tests.harness.sql_fixtures import watched_steps, watched_trace


def error_of(sql: str) -> SqlError:
    """What a statement over the trace and the steps fails with."""
    engine = Engine([watched_trace(), watched_steps()])
    with pytest.raises(SqlError) as caught, engine.run(sql, timeout_s=30) as answer:
        answer.to_arrow()
    return caught.value


FAULTS = [
    ("SELECT * FROM python.torch_trce", "there is no table torch_trce", "python.torch_trace", 14),
    ("FROM foo.steps", "there is no table foo.steps", "python.steps", 5),
    ("SELECT duraton FROM python.steps", "there is no column duraton", "duration", 7),
    ("SELECT losss FROM python.steps", "there is no column losss", "loss", 7),
    ("SELECT t.loss FROM torch_trace t JOIN steps s USING (step)", "no column loss", None, 7),
    ("SELECT s.stp FROM python.steps s", "there is no column stp", "step", 7),
    ("SELECT step\nFROM python.steps\nWHERE modul = 1", "there is no column modul", "model", 36),
    ("SELECT 'é', '日本', duraton FROM python.steps", "there is no column", "duration", 18),
    ("EXPLAIN SELECT duraton FROM python.steps", "there is no column", "duration", 15),
    ("SELECT cout(step) FROM python.steps", "there is no function cout", "count", 7),
    ("SELECT qqqqq(1)", "there is no function qqqqq", None, 7),
    ("SELECT 1 FRM x", "syntax error", None, None),
    ("SELECT 'abc", "unterminated", None, 7),
    ("SELECT 'a'::INT", "Could not convert string 'a' to INT32", None, None),
    ("SELECT max(step) FROM python.steps WHERE max(step) > 1", "cannot contain aggr", None, 41),
    ("SELECT step, seq FROM python.steps GROUP BY step", "must appear in the GROUP BY", None, 13),
    ("SELECT 1 + 'a'", "add explicit type casts", None, 9),
    ("SELECT step FROM python.steps, python.torch_trace", "Ambiguous reference", None, 7),
    ("SELECT error('boom')", "boom", None, None),
    ("SELECT st_point(1, 2)", "exists in the spatial extension.", None, None),
    ("SELECT ?", "Values were not provided", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "reason", "suggestion", "position"), FAULTS)
def test_a_fault_is_named_placed_and_answered(
    sql: str, reason: str, suggestion: str | None, position: int | None
) -> None:
    """A fault gives its sentence, the offset in the user's text, and the nearest name."""
    error = error_of(sql)
    assert reason in error.message
    assert error.suggestion == suggestion
    assert position is None or error.position == position
    assert "\n" not in error.message
    assert not any(word in error.message for word in ("Binder", "Catalog", "LINE", "Candidate"))


def test_a_caret_points_at_the_fault() -> None:
    """The excerpt is the user's own line, not the text that was planned."""
    error = error_of("SELECT step,\n       modul\nFROM python.steps")
    assert error.detail["line"] == 2
    assert error.detail["excerpt"] == "       modul\n       ^"


def test_the_caret_of_a_long_line_is_still_right() -> None:
    """The place does not depend on how much of a line DuckDB shows."""
    sql = f"SELECT {'step, ' * 200}duraton{', step' * 200} FROM python.steps"
    error = error_of(sql)
    assert error.position == sql.index("duraton")
    line, caret = error.caret().split("\n")
    assert line[len(caret) - 1 :].startswith("duraton")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('INTERRUPT Error: {"exception_type":"INTERRUPT","exception_message":"Interrupted!"}',
         QueryTimedOut),
        ("INTERRUPT Error: Interrupted!", QueryTimedOut),
        ("Out of Memory Error: failed to allocate data of size 1.0 GiB", SqlTooLarge),
        ("Invalid Input Error: Arrow Appender: The maximum total string size", SqlTooLarge),
        ("std::bad_alloc", SqlTooLarge),
        ("Invalid Input Error: Failed to write JSON string: memory allocation failed",
         SqlTooLarge),
        ('Permission Error: Cannot access file "x"', SqlRefused),
        ("INTERNAL Error: Attempted to access index 0", InternalError),
        ('Invalid Input Error: Cannot change configuration option "threads" - the configuration'
         " has been locked", SqlRefused),
        ("something quite new", SqlError),
        ("", SqlError),
        ("{", SqlError),
        ('{"exception_message": 5}', SqlError),
    ],
)  # fmt: skip
def test_every_message_becomes_one_of_our_errors(message: str, kind: type[ProbingError]) -> None:
    """Messages in JSON, as text, and in no known form all end as a ProbingError."""
    context = SqlContext(sql="SELECT 1", tables=(), timeout_s=3, memory_mib=64)
    assert type(translate(RuntimeError(message), context)) is kind
    assert translate(RuntimeError(message), context).message


def test_what_keeps_all_values_is_told_how_to_do_without() -> None:
    """A median may be estimated; a sort may not."""
    for sql, is_told in (("SELECT Median(duration) FROM t", True), ("SELECT 1 AS median", False)):
        context = SqlContext(sql=sql, tables=(), timeout_s=3, memory_mib=64)
        error = translate(RuntimeError("Out of Memory Error: failed to allocate"), context)
        assert ("approx_quantile(x, 0.5)" in error.help) == is_told


@pytest.mark.parametrize(
    ("drawn", "found"),
    [
        ("LINE 2:  WHERE foo = 1\n               ^", True),
        ("LINE 2: ...RE foo = 1...\n              ^", True),
        ("LINE 9:  WHERE foo = 1\n               ^", False),
        ("LINE 1: not the text\n        ^", False),
    ],
)
def test_a_drawn_caret_is_understood(drawn: str, found: bool) -> None:
    """Where a message is no JSON, the place is found by the line it draws, whole or shortened."""
    sql = "FROM python.steps\n WHERE foo = 1"
    message = f'Binder Error: Referenced column "foo" not found in FROM clause!\n{drawn}'
    context = SqlContext(sql=sql, tables=(STEPS, TORCH_TRACE), timeout_s=3, memory_mib=64)
    error = translate(RuntimeError(message), context)
    assert isinstance(error, SqlError)
    assert error.position == (sql.index("foo") if found else None)
