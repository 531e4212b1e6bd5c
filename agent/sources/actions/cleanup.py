"""Frees memory that nothing in the process can use any more.

Rules of this file: what each part frees is measured, not reckoned; NULL where nothing tells.
Gradients stay. A step's end is before the script's own `zero_grad`, and until then it may read
them, set them to zero in place, or keep them for a later step or for a CUDA graph; once it has
dropped them, there are none.
"""

from __future__ import annotations

import gc
import os

from ....messages.about.act import Change, Cleanup
from .ledger import Applied
from .targets.scene import Scene


class CleaningUp:
    """Collects garbage, empties caches."""

    def __init__(self, asked: Cleanup) -> None:
        """Nothing is chosen."""

    def prepare(self, scene: Scene) -> None:
        """Nothing has to be found."""

    def apply(self, scene: Scene) -> Applied:
        """Free it."""
        at_first = _memory(scene)
        objects = gc.collect()
        after_garbage = _memory(scene)
        changes = [Change(what="unreachable objects", before=str(objects), after="0")]
        for what, before, after in zip(
            (
                "allocated by the accelerator's allocator, over gc, bytes",
                "resident, over gc, bytes",
            ),
            at_first[:2],
            after_garbage[:2],
            strict=True,
        ):
            if before is not None and after is not None:
                changes.append(Change(what=what, before=str(before), after=str(after)))
        reserved = after_garbage[2]
        notes: tuple[str, ...] = ()
        if reserved is None:
            notes = ("no accelerator is in use, so there is no cache to empty",)
        else:
            scene.training.accelerator.empty_cache()
            changes.append(
                Change(
                    what="reserved by the accelerator's allocator, bytes",
                    before=str(reserved),
                    after=str(_memory(scene)[2]),
                )
            )
        return Applied(changes=tuple(changes), notes=notes)

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Nothing more."""
        return applied


def _memory(scene: Scene) -> tuple[int | None, int | None, int | None]:
    """Bytes that are allocated, resident and reserved."""
    figures = scene.training.accelerator.memory_figures()
    allocated = figures.allocated_bytes if figures is not None else None
    reserved = figures.reserved_bytes if figures is not None else None
    return allocated, _resident(), reserved


def _resident() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
