"""The rows of python.leaks and python.leak_steps, from the last watch.

Rules of this file: runs in the agent's thread; reads figures and names, never a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from ....leaks.lines import line_that_adds
from ....tables import LEAK_GROWTH, LEAK_STEPS, LEAKS, REFERRERS, Table
from ....wire import LiveRows
from .holders import Holder
from .referrers import ReferrerSearch
from .watch import LEAST_BIRTHS, Kept, LeakWatch

_NONE_YET = "nothing has been watched yet: `probing PID leak` does so"
_NONE_ASKED = "nobody has asked yet: `probing PID memory --referrers` does so"


def leak_rows(watch: LeakWatch | None) -> LiveRows:
    """The rows of ``python.leaks``."""
    found: list[dict[str, Any]] = []
    if watch is not None and watch.state == "over":
        holders = [*watch.holders, *[Holder("unknown")] * len(watch.kept)]
        pairs = zip(watch.kept, holders, strict=False)
        found = [_row(kept, holder, watch.done) for kept, holder in pairs]
        found += _growing_hooks(watch)
    return _rows(LEAKS, found, None if watch is not None else _NONE_YET)


def leak_step_rows(watch: LeakWatch | None) -> LiveRows:
    """The rows of ``python.leak_steps``."""
    found = [
        {
            "step": count.step,
            "category": category,
            "tensors": tensors,
            "bytes": size,
            "modules": count.modules,
            "hooks": count.hooks,
            "stale_gradients": count.stale_gradients,
            "graph_pools": count.graph_pools.number,
            "graph_pool_bytes": count.graph_pools.bytes,
            "cost_s": count.cost_ns * 1e-9,
        }
        for count in (list(watch.counts) if watch is not None else ())
        for category, (tensors, size) in sorted(count.categories.items())
    ]
    return _rows(LEAK_STEPS, found, None if watch is not None else _NONE_YET)


def leak_growth_rows(watch: LeakWatch | None) -> LiveRows:
    """The rows of ``python.leak_growth``."""
    first, last = (watch.before, watch.after) if watch is not None else ({}, {})
    none = (0, 0)
    found = [
        {
            **part._asdict(),
            "tensors_before": first.get(part, none)[0],
            "tensors_after": last.get(part, none)[0],
            "bytes_before": first.get(part, none)[1],
            "bytes_after": last.get(part, none)[1],
        }
        for part in dict.fromkeys((*first, *last))
        if first.get(part, none) != last.get(part, none)
    ]
    return _rows(LEAK_GROWTH, found if last else (), None if watch is not None else _NONE_YET)


def referrer_rows(search: ReferrerSearch | None) -> LiveRows:
    """The rows of ``python.referrers``."""
    found: list[dict[str, Any]] = []
    if search is not None and search.state == "over":
        for one, holder in zip(search.sought, search.holders, strict=False):
            found.append({**one._asdict(), **_of_holder(holder)})
    return _rows(REFERRERS, found, None if search is not None else _NONE_ASKED)


def _rows(table: Table, found: Iterable[dict[str, Any]], note: str | None) -> LiveRows:
    columns = tuple(column.name for column in table.columns)
    rows = tuple(tuple(row.get(column) for column in columns) for row in found)
    return LiveRows(table=table.name, columns=columns, rows=rows, note=note)


def _row(kept: Kept, holder: Holder, steps: int) -> dict[str, Any]:
    """What stayed of one kind."""
    kind, births = kept.kind, kept.births.values()
    shape = f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
    return {
        "category": kept.category,
        "module": kept.module,
        "name": kept.name,
        "shape": shape,
        "device": kind.device,
        "was_input": kept.was_input,
        "kept": len(kept.births),
        "births": len(set(births)),
        "tensors_per_step": (kept.last[0] - kept.first[0]) / steps,
        "bytes_per_step": (kept.last[1] - kept.first[1]) / steps,
        "tensors": kept.last[0],
        "bytes": kept.last[1],
        "first_step": min(births),
        "last_step": max(births),
        **_of_holder(holder),
    }


def _of_holder(holder: Holder) -> dict[str, Any]:
    """What is known of who refers to it."""
    line = None
    if holder.file is not None and holder.variable is not None:
        line = line_that_adds(holder.file, holder.variable, after=holder.line_of or 0)
    return {
        "has_graph": holder.has_graph,
        "holder": holder.kind,
        "path": holder.path,
        "place": holder.place,
        "container": holder.container,
        "bound": holder.bound,
        "file": holder.file,
        "lineno": line,
    }


def _growing_hooks(watch: LeakWatch) -> list[dict[str, Any]]:
    """A row for hooks that are registered again and again."""
    counts = watch.counts
    rises = [late.step for early, late in pairwise(counts) if late.hooks > early.hooks]
    holder = counts[-1].newest_hook if counts else None
    if len(rises) < LEAST_BIRTHS or counts[-1].hooks - counts[0].hooks < LEAST_BIRTHS:
        return []
    grown = counts[-1].hooks - counts[0].hooks
    row: dict[str, Any] = {
        "name": "hooks",
        "was_input": False,
        "kept": grown,
        "births": len(rises),
        "tensors_per_step": None,
        "first_step": rises[0],
        "last_step": rises[-1],
    }
    if holder is not None:
        row.update(_of_holder(holder), lineno=holder.line_of)
    return [row]
