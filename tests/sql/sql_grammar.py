"""A small grammar that makes statements of SQL at random, about half of them sound.

Rules of this file: pure; the same source of chance makes the same statements.
"""

from __future__ import annotations

from random import Random

_NUMBERS = ("step", "duration", "start_ns", "seq", "duration_ns")
_TABLES = ("python.torch_trace", "python.steps", "probing.overhead")
_CONSTANTS = ("0", "1", "-1", "0.5", "1e308", "9223372036854775807", "-170141183460469231731",
              "NULL", "'nan'::DOUBLE", "7::UTINYINT")  # fmt: skip
_WORDS = ("", "a", "forward", "é", "%", "1970-01-01", "[1, 2]", '{"a": [null]}', "''", "9" * 40)
_TYPES = ("INTEGER", "DOUBLE", "DATE", "JSON", "BLOB", "HUGEINT", "BOOLEAN", "INTEGER[]",
          "DECIMAL(38, 10)", "INTERVAL", "UUID", "TIMESTAMP", "STRUCT(a INTEGER)")  # fmt: skip
_OF_NUMBERS = ("abs", "sqrt", "ln", "exp", "round", "hash", "sign", "even", "factorial", "to_base")
_OF_TEXTS = ("lower", "reverse", "trim", "md5", "to_json", "hex", "parse_path", "soundex")
_AGGREGATES = ("count", "sum", "min", "max", "avg", "list", "median", "mode", "histogram",
               "approx_count_distinct", "kurtosis", "any_value", "quantile_cont")  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "//", "%", "^", "<<", "&")
_COMPARISONS = ("=", "<", ">=", "<>", "IS NOT DISTINCT FROM")


def statement(source: Random) -> str:
    """A statement."""
    sql = _query(source, 2)
    prefix = source.choice(("", "", "", "", "", "EXPLAIN ", "SUMMARIZE ", "EXPLAIN ANALYZE "))
    if source.random() < 0.1:  # a character lost
        at = source.randrange(len(sql))
        sql = sql[:at] + sql[at + 1 :]
    return prefix + sql


def _query(source: Random, depth: int) -> str:
    """A SELECT, with parts that may be left out."""
    if depth > 0 and source.random() < 0.15:
        kind = source.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT ALL"))
        return f"({_query(source, depth - 1)}) {kind} ({_query(source, depth - 1)})"
    table = f"({_query(source, 0)}) AS s, " if depth > 0 and source.random() < 0.15 else ""
    sql = f"SELECT {_items(source)} FROM {table}{source.choice(_TABLES)}"
    if source.random() < 0.4:
        sql += f" WHERE {_condition(source, depth)}"
    if source.random() < 0.2:
        sql += " GROUP BY ALL"
    if source.random() < 0.3:
        sql += f" ORDER BY {source.choice(('ALL', '1', '1 DESC NULLS LAST'))}"
    if source.random() < 0.3:
        sql += f" LIMIT {source.choice(('0', '3', '50%', '9 OFFSET 7'))}"
    return sql


def _items(source: Random) -> str:
    """What is selected."""
    kind = source.random()
    if kind < 0.15:
        return source.choice(("*", "* EXCLUDE (step)", "count(*)", "COLUMNS('s.*')"))
    if kind < 0.4:
        several = [f"{source.choice(_AGGREGATES)}({_number(source, 1)})" for _ in range(2)]
    else:
        several = [source.choice((_number, _text, _other))(source, 3) for _ in range(3)]
    return ", ".join(f"{item} AS c{number}" for number, item in enumerate(several))


def _condition(source: Random, depth: int) -> str:
    """What is true or not."""
    kind = source.random()
    if depth > 0 and kind < 0.15:
        return f"EXISTS ({_query(source, depth - 1)})"
    if depth > 0 and kind < 0.4:
        word = source.choice(("AND", "OR", "AND NOT"))
        return f"({_condition(source, depth - 1)} {word} {_condition(source, depth - 1)})"
    if kind < 0.6:
        return f"{_text(source, 1)} {source.choice(('LIKE', '~', '<', 'GLOB'))} {_text(source, 1)}"
    return f"{_number(source, 2)} {source.choice(_COMPARISONS)} {_number(source, 2)}"


def _number(source: Random, depth: int) -> str:
    """A value that is a number."""
    kind = source.random()
    if depth <= 0 or kind < 0.3:
        return source.choice(_NUMBERS[:1] if kind < 0.5 else (*_NUMBERS, *_CONSTANTS))
    if kind < 0.6:
        word = source.choice(_OPERATORS)
        return f"({_number(source, depth - 1)} {word} {_number(source, depth - 1)})"
    if kind < 0.8:
        return f"{source.choice(_OF_NUMBERS)}({_number(source, depth - 1)})"
    if kind < 0.9:
        return f"length({_text(source, depth - 1)})"
    return f"row_number() OVER (ORDER BY {_number(source, depth - 1)})"


def _text(source: Random, depth: int) -> str:
    """A value that is a text."""
    kind = source.random()
    if depth <= 0 or kind < 0.4:
        return f"'{source.choice(_WORDS)}'"
    if kind < 0.7:
        return f"{source.choice(_OF_TEXTS)}({_text(source, depth - 1)})"
    if kind < 0.85:
        return f"({_text(source, depth - 1)} || {_text(source, depth - 1)})"
    return f"repeat({_text(source, depth - 1)}, {source.choice(('0', '3', '100000'))})"


def _other(source: Random, depth: int) -> str:
    """A value of another type."""
    inner = source.choice((_number, _text))(source, depth - 1)
    return source.choice(
        (
            f"TRY_CAST({inner} AS {source.choice(_TYPES)})",
            f"({inner})::{source.choice(_TYPES)}",
            f"[{inner}, NULL]",
            f"{{'a': {inner}}}",
            f"MAP {{1: {inner}}}",
            f"CASE WHEN {_condition(source, 0)} THEN {inner} END",
            f"list_transform([{inner}], x -> [x])",
        )
    )
