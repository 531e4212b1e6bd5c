"""SQL that wants more than to read: what every way to the engine has to withstand.

Rules of this file: texts only. ``{file}`` stands for a file that exists, ``{new}`` for one that
must not come to be.
"""

from __future__ import annotations

from typing import NamedTuple

ATTACKS = [
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_json('{file}')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "FROM '{file}'",
    "FROM '/etc/*.csv'",
    "FROM 'https://127.0.0.1:1/x.parquet'",
    "COPY (SELECT 1) TO '{new}'",
    "COPY python.steps FROM '{file}'",
    "EXPORT DATABASE '{new}'",
    "IMPORT DATABASE '{new}'",
    "ATTACH '{new}' AS z",
    "ATTACH ':memory:' AS z",
    "ATTACH 'https://127.0.0.1:1/x.db' AS z",
    "SET log_query_path = '{new}'",
    "CALL enable_logging(storage='file', storage_path='{new}')",
    "FROM enable_logging(storage='file', storage_path='{new}')",
    "SELECT * FROM query('FROM enable_' || 'logging()')",
    "EXPLAIN ANALYZE CALL enable_logging(storage='file', storage_path='{new}')",
    "CALL enable_logging(storage='stdout')",
    "FROM enable_profiling()",
    "CREATE PERSISTENT SECRET s (TYPE http)",
    "INSTALL httpfs",
    "LOAD '{file}'",
    "LOAD json",
    "UPDATE EXTENSIONS",
    "SET memory_limit = '100GB'",
    "RESET threads",
    "PRAGMA threads = 8",
    "PRAGMA enable_logging",
    "PRAGMA table_info('python.steps'); DROP VIEW python.steps",
    "SET enable_progress_bar = true",
    "SET python_enable_replacements = true",
    "SET VARIABLE x = 1",
    "USE python",
    "DROP VIEW python.steps",
    "DELETE FROM python.steps",
    "UPDATE python.steps SET step = 0",
    "INSERT INTO python.steps SELECT * FROM python.steps",
    "WITH x AS (INSERT INTO python.steps SELECT * FROM python.steps) SELECT 1",
    "WITH x AS (SELECT 1) DELETE FROM python.steps",
    "MERGE INTO python.steps USING python.steps s ON true WHEN MATCHED THEN DELETE",
    "EXPLAIN ANALYZE DELETE FROM python.steps",
    "EXPLAIN ANALYZE CREATE TABLE x (i INT)",
    "EXPLAIN /* */ (ANALYZE, FORMAT json) CREATE TEMP TABLE x (i INT)",
    "CREATE OR REPLACE MACRO count(x) AS 5",
    "CREATE TEMP TABLE x AS SELECT 1",
    "ALTER VIEW python.steps RENAME TO x",
    "COMMENT ON VIEW python.steps IS 'x'",
    "PREPARE x AS SELECT 1",
    "EXECUTE x",
    "BEGIN",
    "COMMIT; DROP VIEW python.steps",
    "SELECT 1; SELECT 2",
    "CHECKPOINT",
    "FROM checkpoint()",
    "PIVOT (FROM enable_logging()) ON a USING count(*)",
    "EXPLAIN PIVOT python.steps ON step USING count(*)",
    "VACUUM",
    "FROM truncate_duckdb_logs()",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM python.steps'))",
    "",
    " ; -- nothing",
]


class Bomb(NamedTuple):
    """A statement that wants too much.

    Attributes:
        ends: What may come of it, the codes of errors.
    """

    name: str
    sql: str
    ends: tuple[str, ...]


UNSTOPPABLE = "SELECT jaro_similarity(repeat('a', 3000000), repeat('b', 3000000))"
"""A function that computes for minutes and never asks whether it is interrupted."""
_TOO_LONG = ("query_timed_out",)
_TOO_LARGE = ("sql_too_large", "sql_worker_died", *_TOO_LONG)
BOMBS: tuple[Bomb, ...] = (
    Bomb("long strings", "SELECT repeat('x', 900000000) FROM range(4)", _TOO_LARGE),
    Bomb("a wide format", "SELECT format('{:>2000000000}', 5)", _TOO_LARGE),
    Bomb("a long list", "SELECT list(range) FROM range(100000000)", _TOO_LARGE),
    Bomb("a long sort", "FROM range(100000000) ORDER BY hash(range)", _TOO_LARGE),
    Bomb(
        "recursive text",
        "WITH RECURSIVE r AS (SELECT 'xx' AS s UNION ALL SELECT s || s FROM r) SELECT s FROM r",
        (*_TOO_LARGE, "sql"),
    ),
    Bomb(
        "an endless join",
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 3",
        _TOO_LONG,
    ),
    Bomb(
        "an endless recursion",
        "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i FROM r) SELECT max(i) FROM r",
        _TOO_LONG,
    ),
    Bomb(
        "a constant that takes for ever",
        UNSTOPPABLE,
        _TOO_LONG,
    ),
    Bomb(
        "a plan that doubles 24 times",
        "WITH "
        + ", ".join(
            ["t0 AS NOT MATERIALIZED (SELECT 1 AS x)"]
            + [
                f"t{n} AS NOT MATERIALIZED (SELECT a.x FROM t{n - 1} a, t{n - 1} b)"
                for n in range(1, 25)
            ]
        )
        + " SELECT count(*) FROM t24",
        (*_TOO_LARGE, "sql"),
    ),
    Bomb(
        "a segmentation fault by a deep value",
        "SELECT ((repeat('[', 20000) || repeat(']', 20000))::json::variant)",
        ("sql_worker_died", "sql_too_large"),
    ),
    Bomb(
        "a segmentation fault by deep lists",
        "SELECT json_contains(repeat('[', 1000000) || repeat(']', 1000000), '1')",
        ("sql_worker_died", "sql_too_large", "sql"),
    ),
    Bomb("10,000 parentheses", f"SELECT {'(' * 10_000}1{')' * 10_000}", ("sql",)),
    Bomb("1 MB of text", "SELECT 1" + " " * (1 << 20), ("request_too_large",)),
    Bomb("100,000 statements", "SELECT 1;" * 100_000, ("request_too_large",)),
)
