"""The rows of python.leaks and python.leak_steps, from the last watch.

Rules of this file: runs in the agent's thread; reads figures and names, never a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ....diagnosis.leaks.lines import line_that_adds
from ....diagnosis.leaks.series import Point, classify
from ....messages.common import LiveRows
from ....tables import LEAK_GROWTH, LEAK_STEPS, LEAKS, REFERRERS
from .references.holders import Holder
from .references.referrers import ReferrerSearch
from .watch import LEAST_BIRTHS, Kept, LeakWatch

_MOST_NAMES = 2
"""How many names of a path are looked for in its file: a key of a dictionary may be none in it."""
_LEAST_OF_WORKERS = 1 << 20
"""So much a worker gains and loses by itself."""
_NONE_YET = "nothing has been watched yet: `probing PID leak` does so"
_NONE_ASKED = "nobody has asked yet: `probing PID memory --referrers` does so"


def leak_rows(watch: LeakWatch | None) -> LiveRows:
    """The rows of ``python.leaks``."""
    found: list[dict[str, Any]] = []
    if watch is not None and watch.state == "over":
        holders = [*watch.holders, *[Holder("unknown")] * len(watch.kept)]
        pairs = zip(watch.kept, holders, strict=False)
        found = [_row(kept, holder, watch.done) for kept, holder in pairs]
        found += [row for each in _growth_beside(watch) if (row := _grown(each)) is not None]
    return LiveRows.of_dicts(LEAKS, found, None if watch is not None else _NONE_YET)


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
            "descriptors": count.process.descriptors,
            "threads": count.process.threads,
            "worker_bytes": count.process.worker_bytes,
            "cost_s": count.cost_ns * 1e-9,
        }
        for count in (list(watch.counts) if watch is not None else ())
        for category, (tensors, size) in sorted(count.categories.items())
    ]
    return LiveRows.of_dicts(LEAK_STEPS, found, None if watch is not None else _NONE_YET)


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
    return LiveRows.of_dicts(
        LEAK_GROWTH, found if last else (), None if watch is not None else _NONE_YET
    )


def referrer_rows(search: ReferrerSearch | None) -> LiveRows:
    """The rows of ``python.referrers``."""
    found: list[dict[str, Any]] = []
    if search is not None and search.state == "over":
        for one, holder in zip(search.sought, search.holders, strict=False):
            found.append({**one._asdict(), **_of_holder(holder)})
    return LiveRows.of_dicts(REFERRERS, found, None if search is not None else _NONE_ASKED)


def _row(kept: Kept, holder: Holder, steps: int) -> dict[str, Any]:
    """What stayed of one kind."""
    kind, births = kept.kind, kept.births
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
    file, after = holder.file, holder.line_of or 0
    lines = (line_that_adds(file, name, after=after) for name in holder.names[:_MOST_NAMES] if file)
    line = next((line for line in lines if line is not None), None)
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


class _Growth(NamedTuple):
    """Something that is no storage, of which there is more and more.

    Attributes:
        kept: How many more there are.
        steps: The steps in which some came.
    """

    name: str
    kept: int
    steps: Sequence[int]
    holder: Holder
    bytes_per_step: float | None = None


def _growth_beside(watch: LeakWatch) -> Iterator[_Growth]:
    """What has grown beside storages, or may have."""
    counts = watch.counts
    if not counts:
        return
    rises = [late.step for early, late in pairwise(counts) if late.hooks > early.hooks]
    hooks, newest = counts[-1].hooks - counts[0].hooks, counts[-1].newest_hook
    yield _Growth("hooks", hooks, rises, newest or Holder("unknown"))
    for stayed in watch.other.stayed:  # of a steady number each may be young: a queue, a window
        more = getattr(counts[-1].process, stayed.name) - getattr(counts[0].process, stayed.name)
        kept = min(len(stayed.steps), more)
        yield _Growth(stayed.name, kept, stayed.steps, stayed.holder)
    for grown, holder in zip(watch.collections, watch.collection_holders, strict=False):
        if holder.path is None:  # of a library, or of the agent itself
            continue
        per_step = grown.bytes_per_step
        steps = [counts[0].step + 1, *[counts[-1].step] * (grown.looks - 1)]
        container = f"{grown.kind} of {grown.length:,}"
        yield _Growth("items", grown.grown, steps, holder._replace(container=container), per_step)
    sizes = [(c.step, c.process.worker_bytes) for c in counts]
    points = [Point(step, float(size)) for step, size in sizes if size is not None]
    trend = classify(points, least_rise=_LEAST_OF_WORKERS)
    if len(points) == len(sizes) and trend.grows:
        steps = [point.step for point in points[1:]]
        yield _Growth("workers", round(trend.rise), steps, watch.other.workers, trend.slope)


def _grown(growth: _Growth) -> dict[str, Any] | None:
    """A row for what has grown in several steps."""
    steps = sorted(growth.steps)
    is_whole = growth.name in {"items", "workers"}  # judged already
    if not is_whole and (len(set(steps)) < LEAST_BIRTHS or growth.kept < LEAST_BIRTHS):
        return None
    holder = _of_holder(growth.holder)
    if not is_whole or growth.name == "workers":
        holder["lineno"] = growth.holder.line_of
    return {
        **holder,
        "name": growth.name,
        "was_input": False,
        "kept": growth.kept,
        "births": len(set(steps)) if not is_whole else len(steps),
        "tensors_per_step": None,
        "bytes_per_step": growth.bytes_per_step,
        "first_step": steps[0],
        "last_step": steps[-1],
    }
