"""A place of runs in an object store, with its spool."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from ...errors import UsageError
from ...rundir.folders import ProcessFolder
from ...settings import Settings
from ..compaction.keep import Keep
from ..compaction.outcome import Compacted, Limits
from ..export import Exported
from ..layout import quoted
from .address import is_url
from .compaction import compact_store
from .objects import open_store
from .spool import Spool

_DIGITS = 16


class Bucket:
    """See `place.Place`."""

    def __init__(self, url: str, spool: Spool) -> None:
        self._spool, self.name = spool, url

    def export(self, folder: ProcessFolder, *, project: str | None = None) -> Exported:
        """See `place.Place`."""
        return self._spool.export(folder, project=project)

    def drain(self) -> None:
        """See `place.Place`."""
        self._spool.drain()

    def compact(self, keep: Keep | None = None, limits: Limits | None = None) -> Compacted:
        """See `place.Place`."""
        return compact_store(self._spool.store, keep, limits)


def bucket_of(url: str, env: Mapping[str, str]) -> Bucket:
    """The place at an address.

    Raises:
        UsageError: It is no address of a store, or what waits has no folder.
    """
    store, settings = open_store(url), Settings.from_env(env)
    top = settings.history_spool or _usual_spool(env)
    if is_url(top):
        raise UsageError(f"PROBING_HISTORY_SPOOL is a folder of this machine, and {top} is none.")
    digest = hashlib.sha256(store.url.encode()).hexdigest()[:_DIGITS]
    host = socket.gethostname()
    root = Path(top).absolute() / quoted(host) / digest
    who = hashlib.sha256(f"{host} {os.getuid()} {root}".encode()).hexdigest()[:_DIGITS]
    most_bytes = settings.history_spool_mib << 20
    return Bucket(store.url, Spool(store, root, who=who, most_bytes=most_bytes))


def _usual_spool(env: Mapping[str, str]) -> str:
    """Where what waits is, where no setting says so.

    Raises:
        UsageError: The user has no home.
    """
    state = env.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if state.startswith("~"):
        raise UsageError(
            "there is no home folder for what waits to be sent to a store.",
            help="PROBING_HISTORY_SPOOL, or XDG_STATE_HOME, names a folder.",
        )
    return str(Path(state) / "probing" / "spool")
