"""Which objects of a history in a store no export will put again; see `compaction.settled`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ..compaction.settled import SILENT_S, Settled
from ..layout import state_file
from .objects import Found, Store


def settled_in(store: Store, found: Mapping[str, Found]) -> Settled:
    """Knows the books of processes in a store.

    Args:
        found: The objects that it is asked of, by their names; those that are listed later, too.
    """

    def state(process: str) -> Any:
        data = store.get(state_file(Path(), process).as_posix())
        with contextlib.suppress(ValueError):
            return None if data is None else json.loads(data)
        return None

    def is_silent(path: PurePath) -> bool:
        """Whether an object was not put for twice as long as its spool knows of it."""
        return found[path.as_posix()].mtime_ns < (time.time() - 2 * SILENT_S) * 1e9

    return Settled(state, is_silent)
