"""What other engines are told of a history: statements that they parse, columns that exist."""

from __future__ import annotations

import re

import pytest

from probing.history.layout import Partition
from probing.history.tables import PARTITIONS, stored
from probing.tables import TABLES_BY_NAME
from tests.harness.targets import ROOT

sqlglot = pytest.importorskip("sqlglot", reason="of tests/history.txt")

PAGE = ROOT / "docs" / "how-to" / "history-engines.md"
SECTIONS = dict(
    re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?```sql\n(.*?)```",
        PAGE.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
)
DIALECTS = {
    "Athena": "athena",
    "Trino": "trino",
    "ClickHouse": "clickhouse",
    "BigQuery": "bigquery",
    "Spark": "spark",
}
TYPES = {
    "text": {"TEXT", "VARCHAR"},
    "int64": {"BIGINT"},
    "time": {"BIGINT"},
    "float64": {"DOUBLE"},
}
SETTINGS = {"use_hive_partitioning"}
UNKNOWN = "WITH PARTITION COLUMNS (day STRING)\n"
"""A clause of BigQuery that the parser does not know; without it the statement is one, too."""
FOLDERS = {column.name for column in PARTITIONS} | {"job", "table"}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_statement_is_of_its_dialect(name: str) -> None:
    """It is one statement, which makes something, and whose columns have the types of the files."""
    (parsed,) = sqlglot.parse(SECTIONS[name].replace(UNKNOWN, ""), read=DIALECTS[name])
    assert isinstance(parsed, sqlglot.exp.Create), repr(parsed)[:200]
    columns = {column.name: column.type for column in stored(TABLES_BY_NAME["steps"])}
    found = [one for one in parsed.find_all(sqlglot.exp.ColumnDef) if one.name not in FOLDERS]
    for one in found:
        assert one.args["kind"].this.name in TYPES[columns[one.name]], one
    named = {one.name for one in parsed.find_all(sqlglot.exp.Column)} | {one.name for one in found}
    named -= SETTINGS
    assert named <= columns.keys() | FOLDERS
    assert bool(named) == (name in {"Athena", "Trino", "ClickHouse"})
    assert (UNKNOWN in SECTIONS[name]) == (name == "BigQuery")


@pytest.mark.parametrize("name", ["Athena", "ClickHouse", "BigQuery", "Spark"])
def test_an_address_is_where_the_files_are(name: str) -> None:
    """Projects, jobs, tables and days in the order in which they are folders."""
    keys = r"project=[^/']+/job=[^/']+/table=steps(?:/day=[^/']+)?"
    found = re.findall(keys, SECTIONS[name])
    assert found, SECTIONS[name]
    root = PAGE.parent
    there = Partition(root=root, project="p", job="j", table="steps").day("d").relative_to(root)
    wanted = [part.partition("=")[0] for part in there.parts]
    for address in found:
        keys_there = [part.partition("=")[0] for part in address.split("/")]
        assert keys_there == wanted[: len(keys_there)]


def test_one_question_is_the_same_in_all_dialects() -> None:
    """Each engine parses it, and makes the same of it."""
    question = SECTIONS["One question for all of them"]
    parsed = {sqlglot.parse_one(question, read=one).sql() for one in (*DIALECTS.values(), "duckdb")}
    assert len(parsed) == 1
