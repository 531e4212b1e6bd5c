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
from sqlalchemy.exc import SQLAlchemyError

from ...errors import HistoryBusy, HistoryUnwritable, UsageError
from ..files import line_of, saying_what_failed
from ..layout import iceberg_folder
from ..tables import PARTITIONS

FOLDERS = ("project", "job", "day")
"""The columns that are names of folders: what each table is partitioned by."""
_PROPERTIES = {
    "commit.retry.num-retries": "0",  # the same files would be added to what another has committed
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
assert {column.name for column in PARTITIONS} < set(FOLDERS)


def catalog_of(root: Path, name: str | None) -> Any:
    """The catalog.

    Args:
        name: Of one of the user's, by the settings of pyiceberg; None for the history's own.

    Raises:
        UsageError: There is no such catalog.
        HistoryUnwritable: The history's own cannot be made.
    """
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of columns of NULLs
    if name is not None:
        try:
            return load_catalog(name)
        except Exception as error:  # noqa: BLE001 - of whatever library such a catalog needs
            raise UsageError(
                f"the catalog {name} cannot be had: {line_of(error)}.",
                help="The settings of pyiceberg, such as ~/.pyiceberg.yaml, say what it is.",
            ) from None
    if set("?#") & set(str(root)):
        raise UsageError(
            f"the path {root} has a ? or a #, which Iceberg takes for the end of a path.",
            help="Move the history to a folder without one.",
        )
    folder = iceberg_folder(root)
    with saying_what_failed(root):
        folder.mkdir(parents=True, exist_ok=True)
    with saying_what_is_wrong(root):
        return SqlCatalog(
            "probing",
            uri=f"sqlite:///{folder / 'catalog.db'}",
            warehouse=uri_of(folder / "warehouse"),
        )


def uri_of(path: Path) -> str:
    """What Iceberg calls a file: its readers decode nothing, so nothing is encoded."""
    return f"file://{path}"


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
def saying_what_is_wrong(root: Path) -> Iterator[None]:
    """Turn what a catalog raises into a sentence.

    Raises:
        HistoryBusy: Another one has committed meanwhile.
        HistoryUnwritable: It cannot be committed.
    """
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError):
        raise HistoryBusy(f"the Iceberg tables of {root} were changed meanwhile") from None
    except (SQLAlchemyError, OSError) as error:
        raise HistoryUnwritable(str(root), line_of(error)) from None
