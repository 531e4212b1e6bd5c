"""Where runs are kept: a folder, or a place in an object store. What one can do there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ...rundir.folders import ProcessFolder
from ..compaction.folder import compact_folder
from ..compaction.keep import Keep
from ..compaction.outcome import Compacted, Limits
from ..export import Exported, export_process
from .address import is_url


class Place(Protocol):
    """A place of runs.

    Attributes:
        name: What it is called.
    """

    name: str

    def export(self, folder: ProcessFolder, *, project: str | None = None) -> Exported:
        """Copy there what is new in the record of a process; see `history.export`."""

    def drain(self) -> None:
        """Bring there what waits on this machine."""

    def compact(self, keep: Keep | None = None, limits: Limits | None = None) -> Compacted:
        """Put small files together, and remove what is not to be kept; see `compaction`."""


class _Folder:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self._root, self.name = root, str(root)

    def export(self, folder: ProcessFolder, *, project: str | None = None) -> Exported:
        return export_process(folder, self._root, project=project)

    def drain(self) -> None:
        """Nothing waits."""

    def compact(self, keep: Keep | None = None, limits: Limits | None = None) -> Compacted:
        return compact_folder(self._root, keep, limits)


def place_of(name: str, env: Mapping[str, str]) -> Place:
    """The place of a name.

    Raises:
        UsageError: It is neither a folder nor the address of a store.
    """
    if not is_url(name):
        return _Folder(Path(name).absolute())
    from .bucket import bucket_of  # only here, for it costs a folder nothing then

    return bucket_of(name, env)
