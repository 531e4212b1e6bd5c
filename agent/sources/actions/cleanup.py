"""Frees memory that the next step does not need.

Rules of this file: what each part frees is measured, not reckoned; NULL where nothing tells.
"""

from __future__ import annotations

import gc
import os

from ....messages.about.act import Change, Cleanup
from ..torch_types import Optimizer
from .ledger import Applied
from .targets.scene import Scene


class CleaningUp:
    """Drops gradients, collects garbage, empties caches."""

    def __init__(self, asked: Cleanup) -> None:
        self._asked = asked

    def prepare(self, scene: Scene) -> None:
        """Find whose gradients there are."""
        self._optimizers, self._notes = scene.chosen(None)

    def apply(self, scene: Scene) -> Applied:
        """Free it."""
        dropped = _drop_gradients(self._optimizers)
        after_gradients = _memory(scene)
        objects = gc.collect()
        after_garbage = _memory(scene)
        changes = [
            Change(what="gradients, bytes", before=str(dropped), after="0"),
            Change(what="unreachable objects", before=str(objects), after="0"),
        ]
        for what, before, after in zip(
            (
                "allocated by the accelerator's allocator, over gc, bytes",
                "resident, over gc, bytes",
            ),
            after_gradients[:2],
            after_garbage[:2],
            strict=True,
        ):
            if before is not None and after is not None:
                changes.append(Change(what=what, before=str(before), after=str(after)))
        reserved = after_garbage[2]
        notes = self._notes
        if reserved is None:
            notes += ("no accelerator is in use, so there is no cache to empty",)
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


def _drop_gradients(optimizers: list[Optimizer]) -> int:
    """Set gradients to None; returns the bytes of the storages that nobody else holds then."""
    storages: dict[int, int] = {}
    for optimizer in optimizers:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            gradient = parameter.grad
            if gradient is None:
                continue
            if not gradient.is_sparse:
                storage = gradient.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
            parameter.grad = None
    return sum(storages.values())


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
