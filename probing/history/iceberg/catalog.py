"""Where the Iceberg tables of a history are: in a catalog of their own, or in one of the user's.

Rules of this file: what a catalog raises becomes one sentence here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config
from sqlalchemy.exc import SQLAlchemyError

from ...errors import HistoryBusy, HistoryUnwritable, UsageError
from ..files import line_of
from ..tables import PARTITIONS

FOLDERS = ("project", "job", "day")
"""The columns that are names of folders: what each table is partitioned by."""
_PROPERTIES = {
    "commit.retry.num-retries": "0",  # the same files would be added to what another has committed
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
assert {column.name for column in PARTITIONS} < set(FOLDERS)


def own_catalog(history: str, database: Path, warehouse: str, asking: dict[str, str]) -> Any:
    """The catalog of a history itself.

    Args:
        history: What it is called.
        database: The file of SQLite that has it.
        warehouse: Below which address it keeps what it says of files.
        asking: How that address is asked, in the words of pyiceberg.

    Raises:
        HistoryUnwritable: It cannot be made.
    """
    _say_less()
    with saying_what_is_wrong(history):
        return SqlCatalog("probing", uri=f"sqlite:///{database}", warehouse=warehouse, **asking)


def users_catalog(name: str, asking: dict[str, str]) -> Any:
    """One of the user's, by the settings of pyiceberg.

    Args:
        asking: How a store is asked, where they do not say.

    Raises:
        UsageError: There is no such catalog.
    """
    _say_less()
    try:
        said = Config().get_catalog_config(name) or {}
        return load_catalog(name, **{key: asking[key] for key in asking.keys() - said.keys()})
    except Exception as error:  # noqa: BLE001 - of whatever library such a catalog needs
        raise UsageError(
            f"the catalog {name} cannot be had: {line_of(error)}.",
            help="The settings of pyiceberg, such as ~/.pyiceberg.yaml, say what it is.",
        ) from None


def _say_less() -> None:
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of columns of NULLs


def table_in(catalog: Any, schema: str, name: str) -> Any:
    """A table; None where it is not there yet."""
    try:
        return catalog.load_table((schema, name))
    except NoSuchTableError:
        return None


def begun(catalog: Any, schema: str, name: str, columns: Any) -> Any:
    """A table that is made, without rows.

    Args:
        columns: Its columns, as an Arrow schema.
    """
    with contextlib.suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace((schema,))
    making = catalog.create_table_transaction((schema, name), columns, properties=_PROPERTIES)
    with making.update_spec() as spec:
        for column in FOLDERS:
            spec.add_identity(column)
    return making.commit_transaction()


def is_ours(table: Any) -> bool:
    """Whether a table is partitioned as those of a history are."""
    found = [table.schema().find_field(one.source_id) for one in table.spec().fields]
    return tuple(one.name for one in found) == FOLDERS and all(
        isinstance(one.field_type, StringType) for one in found
    )


@contextlib.contextmanager
def saying_what_is_wrong(history: str) -> Iterator[None]:
    """Turn what a catalog raises into a sentence.

    Raises:
        HistoryBusy: Another one has committed meanwhile.
        HistoryUnwritable: It cannot be committed.
    """
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError):
        raise HistoryBusy(f"the Iceberg tables of {history} were changed meanwhile") from None
    except SQLAlchemyError as error:
        raise HistoryUnwritable(history, line_of(error)) from None
