"""Where a history is whose tables are committed: in a folder, or in an object store.

Rules of this file: who is alone with the tables of a history, and where its own catalog is kept.
That is a file of SQLite in either. A store has no place for a database: whoever is alone gets the
file, commits to it on this machine, and puts it back after each commit.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...errors import HistoryUnwritable, UsageError
from ..files import line_of, locked, saying_what_failed
from ..layout import OWN, iceberg_file, iceberg_folder
from ..scanning.folder import FolderFiles
from ..scanning.source import Source
from ..scanning.store import StoreFiles
from ..stores.address import is_url, parts_of, s3_endpoint
from ..stores.holding import Held, held
from ..stores.objects import ANSWER_S, CONNECT_S, open_store, reason_of, unreachable
from .catalog import own_catalog, users_catalog

T = TypeVar("T")
R = TypeVar("R")

_OWN = f"{OWN}/iceberg"
_DATABASE = "catalog.db"


class Place(Protocol):
    """A place of a history.

    Attributes:
        name: What it is called.
        source: Where its files are.
    """

    name: str
    source: Source

    def url(self, file: str) -> str:
        """What Iceberg calls a file: its readers decode nothing, so nothing is encoded."""

    def alone(self, catalog: str | None) -> contextlib.AbstractContextManager[Any]:
        """Be alone with its tables, and have their catalog.

        Args:
            catalog: The name of the user's own; None for that of the history.

        Raises:
            HistoryBusy: Another process commits to them.
            HistoryUnwritable: The history's own catalog cannot be made.
            UsageError: There is no such catalog.
        """

    def at_once(self, function: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """What a function says of each of many values; only within `alone`."""

    def keep(self) -> None:
        """Have what was committed kept; only within `alone`.

        Raises:
            HistoryBusy: Another process was alone meanwhile.
        """

    def failure(self, error: OSError) -> Exception:
        """What it means that something cannot be read or written there."""


class InFolder:
    """See `Place`."""

    def __init__(self, root: Path) -> None:
        self._root, self.name = root.absolute(), str(root)
        self.source: Source = FolderFiles(str(root))

    def url(self, file: str) -> str:
        """See `Place`."""
        return f"file://{file}"

    @contextlib.contextmanager
    def alone(self, catalog: str | None) -> Iterator[Any]:
        """See `Place`."""
        with locked(self._root, iceberg_file(self._root), busy=_busy(self.name)):
            yield self._own() if catalog is None else users_catalog(catalog, {})

    def _own(self) -> Any:
        if set("?#") & set(str(self._root)):
            raise UsageError(
                f"the path {self._root} has a ? or a #, which Iceberg takes for the end of a path.",
                help="Move the history to a folder without one.",
            )
        folder = iceberg_folder(self._root)
        with saying_what_failed(self._root):
            folder.mkdir(parents=True, exist_ok=True)
        return own_catalog(self.name, folder / _DATABASE, self.url(f"{folder}/warehouse"), {})

    def at_once(self, function: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """See `Place`."""
        return [function(value) for value in values]

    def keep(self) -> None:
        """It is, once it is committed."""

    def failure(self, error: OSError) -> Exception:
        """See `Place`."""
        return HistoryUnwritable(self.name, line_of(error))


class InStore:
    """See `Place`."""

    _alone: Held
    _database: Path | None = None

    def __init__(self, url: str) -> None:
        self._store = open_store(url)
        self.name = self._store.url
        self.source: Source = StoreFiles(url)
        self._scheme = "s3" if parts_of(url)[0] == "s3" else "gs"

    def url(self, file: str) -> str:
        """See `Place`."""
        return f"{self._scheme}://{self._store.path(file)}"

    @contextlib.contextmanager
    def alone(self, catalog: str | None) -> Iterator[Any]:
        """See `Place`."""
        busy = _busy(self.name)
        with held(self._store, f"{_OWN}/lock", wait_s=0.0, busy=busy) as self._alone:
            if catalog is not None:
                server = s3_endpoint() if self._scheme == "s3" else None
                yield users_catalog(catalog, self._asking() if server else {})
                return
            with (
                tempfile.TemporaryDirectory() as place,
                contextlib.closing(self._own(place)) as own,
            ):
                yield own
            self._database = None

    def _own(self, place: str) -> Any:
        """The history's own catalog, as it was kept last."""
        self._database = Path(place, _DATABASE)
        kept = self._store.get(f"{_OWN}/{_DATABASE}")
        if kept is not None:
            self._database.write_bytes(kept)
        warehouse = self.url(f"{_OWN}/warehouse")
        return own_catalog(self.name, self._database, warehouse, self._asking())

    def _asking(self) -> dict[str, str]:
        """How pyiceberg is to ask the store, as we do; who asks, it finds out by itself."""
        if self._scheme != "s3":
            return {}
        known = {
            "s3.endpoint": s3_endpoint(),
            "s3.region": str(self._store.fs.region),  # else it looks for the bucket at Amazon
            "s3.connect-timeout": str(CONNECT_S),
            "s3.request-timeout": str(ANSWER_S),
        }
        return {name: value for name, value in known.items() if value is not None}

    def at_once(self, function: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """See `Place`."""
        return self._alone.at_once(function, values)

    def keep(self) -> None:
        """See `Place`."""
        self._alone.renew()
        if self._database is not None:
            self._store.put(f"{_OWN}/{_DATABASE}", self._database.read_bytes())

    def failure(self, error: OSError) -> Exception:
        """See `Place`; the user's own catalog may keep its tables anywhere."""
        if self._database is None:
            return HistoryUnwritable(self.name, line_of(error))
        return unreachable(self.name, reason_of(error))


def place_of(place: str) -> Place:
    """The place of a name.

    Raises:
        UsageError: It is no place for a history.
        NoHistory: There is no such folder.
    """
    return InStore(place) if is_url(place) else InFolder(Path(place))


def _busy(name: str) -> str:
    return f"the history {name} is being put into Iceberg tables"
