"""DuckDB as it is loaded, and the database of one query: in memory, without threads and files.

Rules of this file: what a statement could do to the machine is taken away here, for good, before
SQL is run. And the only place that says how DuckDB is loaded. `import duckdb` loads the engine and,
from 2.0 on, ten thousand lines of Python over it that a statement does not need, at three times
the cost of the engine. Of the versions named here the engine is loaded alone; of any other, all.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

_KNOWN = ("2.0.",)
"""Whose engine is known to work alone, and to tell the types of a statement by `_bind`."""


def _load() -> tuple[Any, bool]:
    """The module that has the engine, and whether it is a known one."""
    with contextlib.suppress(ImportError):
        import _duckdb

        if str(getattr(_duckdb, "__version__", "")).startswith(_KNOWN):
            return sys.modules.get("duckdb", _duckdb), True
    import duckdb

    return duckdb, False


if TYPE_CHECKING:
    import duckdb as duckdb  # noqa: PLC0414

    IS_KNOWN = True
else:
    duckdb, IS_KNOWN = _load()


class _Source:
    """An object that hands over Arrow columns, in the words in which the engine asks for them."""

    one_shot = pull_under_gil = schema_is_stable = False

    def __init__(self, columns: Any) -> None:
        self.obj = columns
        self.__arrow_c_schema__ = columns.__arrow_c_schema__

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.obj.__arrow_c_stream__()

    def rows(self) -> None:
        """How many rows there are; not known before they are read."""

    def accepts(self, predicate: Any) -> bool:
        """Whether rows are sorted out by a condition before they are handed over."""
        return False

    def stream(self, columns: Any, filters: Any) -> tuple[Any, bool]:
        """A stream, and whether it has those columns alone: their places; None for all."""
        stream: tuple[Any, bool] = self.obj.stream(columns)
        return stream


class _Condition:
    """A condition of a statement, which nobody looks at."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


class _Conditions:
    """What the engine makes conditions of, to offer them to a source."""

    def __getattr__(self, name: str) -> type[_Condition]:
        return _Condition


class _Sources:
    """What the engine asks for a source, in place of `duckdb._sources`."""

    adapt = Source = _Source
    nodes = _Conditions()


def can_read_columns() -> bool:
    """Whether the engine reads Arrow columns alone; from now on it does."""
    if IS_KNOWN and "duckdb" not in sys.modules:
        duckdb._set_arrow_sources(_Sources)  # type: ignore[attr-defined]  # noqa: SLF001
    return IS_KNOWN


def source_of(columns: Any) -> Any:
    """What a known engine registers for an object with Arrow columns, alone or loaded whole."""
    return _whole_source()(columns) if "duckdb" in sys.modules else columns


@functools.cache
def _whole_source() -> type[_Source]:
    """A source that the engine takes for one of its own, once it is loaded whole."""
    from duckdb._sources import ArrowScanSource

    return type("_WholeSource", (_Source, ArrowScanSource), {})


def load_whole() -> None:
    """Load what gives a connection its methods that make relations, and reads Arrow."""
    import duckdb  # noqa: F401
    import pyarrow as pa  # noqa: F401 - which duckdb loads with the first answer


def locked_database() -> duckdb.DuckDBPyConnection:
    """A database without tables, in which only constants can be computed and SQL be parsed."""
    connection = fresh_database(64)
    lock(connection)
    return connection


def fresh_database(memory_mib: int, *, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A fresh database in memory that writes no file, and with one thread starts none."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "memory_limit": f"{memory_mib}MiB",
        "temp_directory": "",
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "allow_community_extensions": False,
        "allow_persistent_secrets": False,
        "errors_as_json": True,
    }
    if not duckdb.__version__.startswith("1."):
        config["async_threads"] = 0
    connection = duckdb.connect(":memory:", config=config)
    # It draws one on stdout where it takes that for a terminal. In a notebook without ipywidgets it
    # draws none, and refuses to hear of it.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection


def lock(connection: duckdb.DuckDBPyConnection, folders: Sequence[str] = ()) -> None:
    """Take away files, network, the caller's variables, settings and writing, for good.

    Args:
        folders: Those whose files may be read all the same.
    """
    if folders:
        quoted = (f"'{folder.replace(chr(39), chr(39) * 2)}'" for folder in folders)
        connection.execute(f"SET allowed_directories = [{', '.join(quoted)}]")
    connection.execute(
        "SET enable_external_access = false; SET python_enable_replacements = false;"
        " SET lock_configuration = true; BEGIN TRANSACTION READ ONLY"
    )
