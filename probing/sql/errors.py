"""The one border at which DuckDB's errors become ours.

Rules of this file: text in, error out; it runs nothing and imports no DuckDB. The engine asks
DuckDB for its errors as JSON (`errors_as_json`), so that kind, name and place need no guessing;
a message in another form is still understood as text. No exception of DuckDB passes `Engine`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import InternalError, ProbingError, QueryTimedOut, SqlError, SqlRefused, SqlTooLarge
from ..messages.frozen import dataclass
from ..tables import Table

_PREFIX = re.compile(r"^(?:[A-Za-z_ ]*?Error: )+")
_LINE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_NO_TABLE = re.compile(r"Table with name \"?([^\"!]+?)\"? does not exist")
_NO_COLUMN = re.compile(
    r"(?:Referenced column|does not have a column named|Column|Table \"[^\"]*\" does not have a"
    r" column named) \"([^\"]+)\""
)
_WRITES = re.compile(
    r"is not an? table|from base table|[Cc]an only \w+ (?:from )?(?:a )?base|read-only mode"
    r"|configuration has been locked",
)
_OVERSIZE = re.compile(
    r"Arrow Appender|[Oo]ut of memory|failed to allocate|allocation failed|bad_alloc|bad alloc"
)
_KEEPS_VALUES = re.compile(r"\b(?:median|quantile\w*|mad|mode)\s*\(", re.IGNORECASE)
_HOW_TO_ESTIMATE = (
    " A median keeps every value. approx_quantile(x, 0.5), and faster reservoir_quantile(x, 0.5,"
    " 8192), take next to no memory and are a few percent off at most."
)
_TYPED = re.compile(r'(?:"[^"]+"|\w+)(?:\s*\.\s*(?:"[^"]+"|\w+))*')
_FILE_LIKE = re.compile(r"[/\\*]|\.(?:csv|tsv|json|jsonl|ndjson|parquet|db|duckdb|txt|gz)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlContext:
    """What a message has to be read against.

    Attributes:
        sql: The statement as the user gave it.
        tables: The tables that exist.
        catalog: What stands before the names of tables, where they have to be named with it.
        added: What stood before it in the text that DuckDB saw, whole lines only.
        left_out: The beginning of `sql` that DuckDB did not see.
    """

    sql: str
    tables: Sequence[Table]
    timeout_s: float
    memory_mib: int
    catalog: str = ""
    added: str = ""
    left_out: str = ""


def translate(error: BaseException, context: SqlContext) -> ProbingError:
    """Our error for one that came out of DuckDB or of its Arrow stream."""
    report = _parse(str(error), type(error).__name__)
    kind, message = report["exception_type"], report["exception_message"]
    position = _position(report, context)
    if kind.lower().startswith("interrupt"):
        return QueryTimedOut(context.timeout_s)
    if isinstance(error, MemoryError) or kind == "Out of Memory" or _OVERSIZE.search(message):
        too_large = SqlTooLarge(
            f"the query needs more memory than its engine may use ({context.memory_mib} MiB)"
        )
        if _KEEPS_VALUES.search(context.sql):
            too_large.help += _HOW_TO_ESTIMATE
        return too_large
    if kind == "Permission":
        return SqlRefused(
            "a query can read the tables of the process and nothing else: no files, no network,"
            " no extensions",
            sql=context.sql,
            position=position,
        )
    if kind in ("INTERNAL", "FATAL"):
        return InternalError(f"the SQL engine failed: {_one_line(message)}")
    return _statement_error(report, message, position, context)


def _statement_error(
    report: dict[str, Any], message: str, position: int | None, context: SqlContext
) -> SqlError:
    """The error of a statement that does not fit the catalogue or the grammar."""
    kind, sql = str(report.get("type", "")), context.sql
    table = _NO_TABLE.search(message)
    if table:
        return _no_table(table.group(1), position, context)
    column = _NO_COLUMN.search(message)
    if (column and "not found" in message) or "does not have a column" in message:
        return _no_column(column.group(1) if column else "", message, report, position, context)
    if _WRITES.search(message) and report["exception_type"] != "Parser":
        return SqlRefused(
            "the statement would change something, and only statements that read are run",
            sql=sql,
            position=position,
        )
    if kind and "does not exist" in message:
        name = str(report.get("name", ""))
        near = _nearest(name, str(report.get("candidates", "")).split(", "))
        noun = kind.lower().replace("scalar ", "").replace("aggregate ", "")
        return SqlError(
            f"there is no {noun} {name}",
            sql=sql,
            position=position,
            suggestion=near or None,
        )
    return SqlError(_one_line(message), sql=sql, position=position)


def _no_table(name: str, position: int | None, context: SqlContext) -> SqlError:
    """The error for a table that does not exist, or for a file meant as one."""
    if _FILE_LIKE.search(name):
        return SqlRefused(
            f"a query can read the tables of the process and nothing else, not {name!r}",
            sql=context.sql,
            position=position,
        )
    typed = name_at(context.sql, position) or name
    short = name.rpartition(".")[2].lower()
    by_name = {table.name: table.full_name for table in context.tables}
    before = f"{context.catalog}." if context.catalog else ""
    if before and short in by_name and not typed.lower().startswith(before):
        return SqlError(
            f"{typed} is of live processes and the statement asks {context.catalog}, too: a"
            " statement asks one of the two, not both",
            sql=context.sql,
            position=position,
        )
    near = short if short in by_name else _nearest(short, by_name)
    found = None if near is None else f"{before}{by_name[near]}"
    return SqlError(
        f"there is no table {name}",
        sql=context.sql,
        position=position,
        suggestion=None if found == typed.lower() else found,
    )


def name_at(sql: str, position: int | None) -> str:
    """The name of a table that stands at a place of a statement, without quotes; else nothing."""
    found = None if position is None else _TYPED.match(sql, position)
    return "" if found is None else re.sub(r'["\s]', "", found[0])


def _no_column(
    name: str, message: str, report: dict[str, Any], position: int | None, context: SqlContext
) -> SqlError:
    """The error for a column that does not exist."""
    in_use = [t for t in context.tables if re.search(rf"\b{t.name}\b", context.sql, re.IGNORECASE)]
    known = [c.name for table in in_use or context.tables for c in table.columns]
    known += re.findall(r'"([^"]+)"', message.partition("Candidate bindings")[2])
    known += str(report.get("candidates", "")).split(", ")
    return SqlError(
        f"there is no column {name}",
        sql=context.sql,
        position=position,
        suggestion=_nearest(name, known),
    )


def _nearest(name: str, known: Iterable[str]) -> str | None:
    from .nearest import nearest  # here: most statements are right

    return nearest(name, known)


def _parse(text: str, class_name: str) -> dict[str, Any]:
    """The members of DuckDB's report; made up from the text where it is not JSON."""
    start = text.find("{")
    if start >= 0:
        try:
            report = json.loads(text[start:])
            if isinstance(report.get("exception_message"), str):
                return {"exception_type": "", **report}
        except (ValueError, AttributeError, RecursionError):
            pass
    kind = text.partition(" Error: ")[0] if " Error: " in text[:40] else class_name
    return {"exception_type": kind, "exception_message": _PREFIX.sub("", text)}


def _position(report: dict[str, Any], context: SqlContext) -> int | None:
    """The character offset in the user's statement, if the report tells the place."""
    try:
        offset = int(report["position"]) - len(context.added.encode())
    except (KeyError, ValueError, TypeError):
        return _position_by_caret(report["exception_message"], context)
    seen = context.sql.removeprefix(context.left_out).encode()
    if not 0 <= offset <= len(seen):
        return None
    return len(context.left_out) + len(seen[:offset].decode("utf-8", "ignore"))


def _position_by_caret(message: str, context: SqlContext) -> int | None:
    """The offset that a drawn caret points to; the line above it may have been shortened."""
    found = _LINE.search(message)
    if found is None:
        return None
    number = int(found.group(1)) - context.added.count("\n")
    lines = context.sql.removeprefix(context.left_out).split("\n")
    if not 1 <= number <= len(lines):
        return None
    column = len(found.group(3)) - len(f"LINE {found.group(1)}: ")
    shown = found.group(2)
    if shown.startswith("...") and not lines[number - 1].startswith("..."):
        shown, column = shown[3:], column - 3
    start = lines[number - 1].find(shown.removesuffix("..."))
    if start < 0 or column < 0:
        return None
    before = len(context.left_out) + sum(len(line) + 1 for line in lines[: number - 1])
    return before + start + column


def _one_line(message: str) -> str:
    """DuckDB's sentence without its sketch of the statement, its guesses and its lists."""
    text = _LINE.split(message)[0]
    for mark in ("\nCandidate", "\n\tCandidate", "\nDid you mean", "\nPlease"):
        text = text.partition(mark)[0]
    return " ".join(text.split()).rstrip("!").strip() or "the statement cannot be run"
