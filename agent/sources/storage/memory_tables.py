"""The rows of the live tables about memory: tensors, categories, activations, segments.

Rules of this file: runs in threads of the agent, on numbers and texts only; nothing here touches a
tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ....messages.common import LiveRows
from ....tables import (
    ACTIVATIONS,
    CATEGORIES,
    MEMORY_CATEGORIES,
    MEMORY_SEGMENTS,
    PINNED,
    TENSORS,
    Table,
)
from ..accelerator import PinnedMemory, device_kind
from ..leaks.graph_pools import pool_of
from .memory_look import BEFORE_BACKWARD, Moment
from .storages import Storage

Row = tuple[str | int | float | bool | None, ...]

_LARGE = 2**20
_LARGEST = 3


def tensor_rows(moments: Sequence[Moment]) -> Iterator[Row]:
    """The rows of ``python.tensors``, the largest first."""
    for moment in moments:
        for one in sorted(moment.storages, key=lambda s: -s.bytes):
            yield (
                moment.moment,
                moment.step,
                one.device,
                one.category,
                one.module,
                one.name,
                one.dtype,
                ",".join(map(str, one.shape)),
                one.bytes,
                one.requires_grad,
                one.tensors,
                one.tensor_id,
                one.address,
                _age(moment, one),
                one.frame,
            )


def _age(moment: Moment, one: Storage) -> int | None:
    """Before how many steps a storage came."""
    if moment.step is None or one.born is None:
        return None
    return moment.step - one.born


def category_rows(moments: Sequence[Moment]) -> Iterator[Row]:
    """The rows of ``python.memory_categories``: of each device that is used, every category."""
    for moment in moments:
        for device, storages in _grouped(moment.storages, lambda s: s.device):
            total = sum(one.bytes for one in storages)
            by_category = dict(_grouped(storages, lambda s: s.category))
            for category in CATEGORIES:
                own = by_category.get(category, [])
                size = sum(one.bytes for one in own)
                yield (
                    moment.moment,
                    moment.step,
                    device,
                    category,
                    size,
                    size / total,
                    len(own),
                    sum(one.bytes for one in own if one.numbers is not None),
                    sum(one.numbers for one in own if one.numbers is not None),
                    sum(one.bytes for one in own if one.is_adapter),
                    _largest(own),
                    moment.held_s,
                )


def activation_rows(moments: Sequence[Moment]) -> Iterator[Row]:
    """The rows of ``python.activations``, the largest first."""
    for moment in moments:
        if moment.moment != BEFORE_BACKWARD:
            continue
        kept = [one for one in moment.storages if one.category == "activations"]
        sums = [
            (sum(one.bytes for one in own), key, len(own))
            for key, own in _grouped(kept, lambda s: (s.module, s.device))
        ]
        for size, (module, device), count in sorted(sums, key=lambda s: -s[0]):
            yield moment.step, module, device, size, count


def segment_rows(segments: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """The rows of ``python.memory_segments``, from the allocator's own snapshot."""
    kind = device_kind()
    for segment in segments:
        blocks = segment["blocks"]
        free = [block["size"] for block in blocks if block["state"] == "inactive"]
        used = [block for block in blocks if block["state"] == "active_allocated"]
        asked = [block.get("requested_size") for block in used]
        allocated = segment["allocated_size"]
        yield (
            f"{kind}:{segment['device']}",
            segment["segment_type"],
            segment["stream"],
            segment["address"],
            segment["total_size"],
            allocated,
            segment["active_size"] - allocated,
            sum(free),
            max(free, default=0),
            None if None in asked else allocated - sum(asked),
            len(blocks),
            segment.get("is_expandable"),
            pool_of(segment),
        )


ROWS: dict[str, tuple[Table, Callable[[Sequence[Moment]], Iterator[Row]]]] = {
    TENSORS.name: (TENSORS, tensor_rows),
    MEMORY_CATEGORIES.name: (MEMORY_CATEGORIES, category_rows),
    ACTIVATIONS.name: (ACTIVATIONS, activation_rows),
}
"""How the rows of each table that is made from moments are computed."""


def segments_of(segments: list[dict[str, object]] | None, pinned: PinnedMemory | None) -> LiveRows:
    """The rows of ``python.memory_segments``, or why there are none."""
    is_used = segments is not None or pinned is not None
    note = None if is_used else "no accelerator is in use: there are no segments"
    own = segment_rows(segments) if segments else ()  # without torch there is no kind of device
    rows = [*own, *_pinned_rows(pinned)]
    return LiveRows.of(MEMORY_SEGMENTS, rows, note)


def _pinned_rows(pinned: PinnedMemory | None) -> Iterator[Row]:
    """The row of what is pinned, if anything is: where, and in which sizes, nobody tells."""
    if pinned is None or not pinned.bytes:
        return
    used = pinned.used_bytes
    known: dict[str, str | int | None] = {
        "device": "cpu",
        "pool": PINNED,
        "reserved_bytes": pinned.bytes,
        "allocated_bytes": used,
        "free_bytes": None if used is None else pinned.bytes - used,
        "blocks": pinned.pieces,
    }
    yield tuple([known.get(column.name) for column in MEMORY_SEGMENTS.columns])


def _largest(storages: list[Storage]) -> str | None:
    large = sorted((s for s in storages if s.bytes >= _LARGE), key=lambda s: -s.bytes)
    named = [f"{_label(one)} {one.bytes / _LARGE:.1f} MiB" for one in large[:_LARGEST]]
    return ", ".join(named) or None


def _label(storage: Storage) -> str:
    """What a storage is called, or what it looks like."""
    names = [part for part in (storage.module, storage.name) if part]
    shape = f"{storage.dtype}[{','.join(map(str, storage.shape))}]"
    return ".".join(names) if storage.name else " ".join([*names, shape])


def _grouped(storages: Iterable[Storage], key: Callable[[Storage], Any]) -> Iterable[Any]:
    """Storages with the same key, in the order in which the keys come."""
    groups: dict[Any, list[Storage]] = defaultdict(list)
    for storage in storages:
        groups[key(storage)].append(storage)
    return groups.items()
