"""Which tables a history in a store has."""

from __future__ import annotations

from ..layout import unquoted
from ..stores.objects import Store, at_once


def tables_in(store: Store, within: str | None = None) -> list[tuple[str, str]]:
    """The folder of each table of each job, with the name of the table; in the order of folders.

    Args:
        within: Of which job, see `layout.job_folder`; None for all.

    Raises:
        StoreUnreachable: The store cannot be asked.
    """
    if within is None:
        projects = _folders(store, [""], "project=")
        jobs = _folders(store, projects, "job=")
    else:
        jobs = [within]
    folders = _folders(store, jobs, "table=")
    found = ((unquoted(folder.rpartition("table=")[2]), folder) for folder in folders)
    return [(table, folder) for table, folder in found if table]


def _folders(store: Store, folders: list[str], key: str) -> list[str]:
    """The folders in some folders that begin with a key."""
    found = (one for some in at_once(store.folders, folders) for one in some)
    return [one for one in found if one.rpartition("/")[2].startswith(key)]
