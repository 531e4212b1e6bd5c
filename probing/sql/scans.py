"""Tables as DuckDB sees them: views that read a table only when a scan of it begins.

Rules of this file: a table is loaded at most once for each query, so that a self-join sees one
moment, and only the columns that the statement reads.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InternalError
from ..ring.columns.batch import fields_of
from ..ring.native import IN_C
from ..tables import OWN_SCHEMA, SCHEMA, Table
from .database import can_read_columns, duckdb, load_whole, source_of
from .quoting import code_of, identifier, text_literal

if TYPE_CHECKING:
    import pyarrow as pa

_CATALOGUE_WORDS = re.compile(r"comment|duckdb_(?:columns|views)", re.IGNORECASE)
_MAY_READ_ANY = re.compile(
    r"information_schema|\b(?:duckdb_|sqlite_|pg_|pragma|query(?:_table)?\"? \()"
    r"|\b(?:regclass|show|desc|describe|summarize)\b",
    re.IGNORECASE,
)
"""What a statement's code has in it that asks which tables there are, or hides which it reads."""
_ORDER_BY = re.compile(r"\border\s+by\b", re.IGNORECASE)
_DOWNWARDS = re.compile(
    r"(?<=[\w)\]\"])\s+desc\s*(?=$|[,);]|(?:nulls|limit|fetch|offset|rows|range|groups|union|qualify)\b)",
    re.IGNORECASE,
)
"""The word of an order, where another asks for a description."""


class TableProvider(Protocol):
    """One table that SQL can name.

    One whose columns are not the declared ones has an attribute `arrow_schema` that says them.
    """

    table: Table

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows, by `arrow_tables.schema_of`; called at most once per query.

        Args:
            columns: The columns that are read; the others may come as NULL. None for all.

        Raises:
            ProbingError: The rows cannot be had; the query ends with this error.
        """


class Scan:
    """A provider as DuckDB sees it: a schema for the planner, rows when a scan begins.

    Its columns are called ``table.column``, so that a plan tells which table they are of.

    Attributes:
        columns: What the statement reads of it; None for everything.
        threads: How many may read it at a time.
        error: What the provider raised.
    """

    def __init__(self, provider: TableProvider) -> None:
        self._provider = provider
        self.name = provider.table.name
        self.schema = provider.table.schema
        self.columns: frozenset[str] | None = None
        self.threads = 1
        self.error: BaseException | None = None
        self._loaded: Any = None

    @property
    def is_native(self) -> bool:
        """Whether the C part reads it; else pyarrow does."""
        return IN_C is not None and hasattr(self._provider, "load_batch")

    @property
    def bytes(self) -> int:
        """The size of what it is read from; 0 where that is not known."""
        return self._provider.file_bytes() if self.is_native else 0  # type: ignore[attr-defined]

    @functools.cached_property
    def _declared(self) -> pa.Schema:
        """The columns under their own names."""
        from ..ring.arrow_tables import schema_of

        given: pa.Schema | None = getattr(self._provider, "arrow_schema", None)
        return given or schema_of(self._provider.table)

    @functools.cached_property
    def _fields(self) -> list[str]:
        """What they are called in the scan."""
        return [f"{self.name}.{name}" for name in self._names]

    @property
    def _names(self) -> Sequence[str]:
        if self.is_native:
            return [column.name for column in self._provider.table.columns]
        names: list[str] = self._declared.names
        return names

    @property
    def projection(self) -> str:
        """The select list that gives the columns their own names back."""
        names = zip(self._fields, self._names, strict=True)
        return ", ".join(f'"{field}" AS "{name}"' for field, name in names)

    def comments(self) -> str:
        """The statements that tell the catalogue what table and columns mean."""
        table, name = self._provider.table, identifier(self.name)
        texts = [f"VIEW {name} IS {text_literal(table.doc)}"]
        texts += [
            f"COLUMN {name}.{identifier(c.name)} IS {text_literal(c.doc)}" for c in table.columns
        ]
        return "; ".join(f"COMMENT ON {text}" for text in texts)

    def __arrow_c_schema__(self) -> Any:
        if self.is_native:
            return IN_C.arrow_schema(fields_of(self._provider.table, f"{self.name}."))
        import pyarrow as pa

        fields = zip(self._fields, self._declared, strict=True)
        return pa.schema([field.with_name(name) for name, field in fields]).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.stream(None)[0]

    def stream(self, places: Sequence[int] | None) -> tuple[Any, bool]:
        """A stream, and whether it has the columns at those places alone; all of them for None."""
        if self._loaded is None:
            try:
                self._loaded = self._load()
            except BaseException as error:
                self.error = error
                raise
        if not self.is_native:
            return self._loaded.__arrow_c_stream__(), False
        return self._loaded.stream(f"{self.name}.", places), bool(places)

    def _load(self) -> Any:
        if self.is_native:
            return self._provider.load_batch(  # type: ignore[attr-defined]
                self.columns, threads=self.threads
            )
        table = self._provider.load(self.columns)
        if not table.schema.equals(self._declared):
            raise InternalError(f"the table {self.name} was not loaded as it is declared")
        return table.rename_columns(self._fields)


def may_read_any(sql: str) -> bool:
    """Whether a statement asks which tables there are, or hides which it reads."""
    code = code_of(sql)
    told = _DOWNWARDS.sub(" ", code) if _ORDER_BY.search(code) else code
    return _MAY_READ_ANY.search(told) is not None


def named_in(scans: Sequence[Scan], sql: str) -> Sequence[Scan]:
    """The tables that a statement may read without an error, by the words in it."""
    if may_read_any(sql):
        return scans
    words = set(re.findall(r"\w+", sql.lower()))
    return [scan for scan in scans if scan.name.lower() in words]


def _create_view(connection: duckdb.DuckDBPyConnection, scan: Scan) -> None:
    """One view by the engine alone, as its Python makes it."""
    source = connection._register_source(source_of(scan))  # noqa: SLF001
    statement = f'SELECT {scan.projection} FROM "{source.name}"'  # noqa: S608 - names of ours
    connection._create_view(  # noqa: SLF001
        scan.name, statement, replace=False, sources=[source]
    )


def create_views(connection: duckdb.DuckDBPyConnection, scans: Sequence[Scan], sql: str) -> None:
    """One view for each table, in its schema; both are looked through for a bare name."""
    with_comments = bool(_CATALOGUE_WORDS.search(sql))
    for schema in (SCHEMA, OWN_SCHEMA):
        connection.execute(f"CREATE SCHEMA {schema}")
    is_alone = all(scan.is_native for scan in scans) and can_read_columns()
    if not is_alone:
        load_whole()
    for scan in scans:
        connection.execute(f"USE {scan.schema}")
        if is_alone:
            _create_view(connection, scan)
        else:
            connection.from_arrow(scan).project(scan.projection).create_view(scan.name)
        if with_comments:
            connection.execute(scan.comments())
    connection.execute(f"SET search_path = 'memory.{SCHEMA},memory.{OWN_SCHEMA},memory.main'")
