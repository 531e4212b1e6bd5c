"""The database of one query: in memory, without threads and files, and locked before SQL is run.

Rules of this file: what a statement could do to the machine is taken away here, for good.
"""

from __future__ import annotations

from collections.abc import Sequence

from .library import duckdb


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
    # It draws one on stdout where it takes that for a terminal.
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
