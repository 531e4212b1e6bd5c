"""How much memory the worker processes of data loaders have of their own.

Rules of this file: runs in the training thread; reads what the kernel tells of each, and never asks
a `Process` object, which would take the news of its death from the training.
"""

from __future__ import annotations

import sys
from typing import Any

from ..storage.living import living
from .references.holders import Holder

_ANONYMOUS = b"RssAnon:"


def workers_now() -> dict[int, int]:
    """The anonymous memory of each, in bytes, by its pid."""
    module: Any = sys.modules.get("multiprocessing.process")
    found: dict[int, int] = {}
    for child in list(getattr(module, "_children", ())):
        pid: int | None = getattr(getattr(child, "_popen", None), "pid", None)
        size = None if pid is None else _anonymous_bytes(pid)
        if pid is not None and size is not None:
            found[pid] = size
    return found


def holder_in_workers(pids: set[int]) -> Holder:
    """The data set that some workers read, by where its class makes samples."""
    module: Any = sys.modules.get("torch.utils.data.dataloader")
    kind = getattr(module, "_MultiProcessingDataLoaderIter", None)
    for iterator in living((kind,))[0] if kind is not None else ():
        own = {getattr(w._popen, "pid", None) for w in list(getattr(iterator, "_workers", ()))}
        if own & pids:
            return _makes_samples(type(iterator._dataset))
    return Holder("unknown")


def _makes_samples(dataset: type) -> Holder:
    for name in ("__getitem__", "__getitems__", "__iter__"):
        code = getattr(getattr(dataset, name, None), "__code__", None)
        if code is not None:
            return Holder(
                "unknown",
                path=f"{dataset.__qualname__}.{name}",
                place=dataset.__module__,
                file=code.co_filename,
                line_of=code.co_firstlineno,
            )
    return Holder("unknown", path=dataset.__qualname__, place=dataset.__module__)


def _anonymous_bytes(pid: int) -> int | None:
    """What the kernel says; None of a process that is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            line = next((line for line in status if line.startswith(_ANONYMOUS)), None)
    except OSError:
        return None
    return None if line is None else int(line.split()[1]) << 10
