"""What the pools of CUDA graphs have reserved.

Rules of this file: pure functions of what the allocator tells of itself, by way of the seam. Memory
of a graph's pool is handed out once, as the graph is captured, and stays until the graph goes: no
tensor that Python knows of shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_COMMON = (0, 0)


class GraphPools(NamedTuple):
    """Both are None where no accelerator is in use, or its torch does not tell pools apart."""

    number: int | None = None
    bytes: int | None = None


def pool_of(segment: Mapping[str, Any]) -> str | None:
    """The pool of a graph that a segment belongs to; None for that which all share."""
    told = segment.get("segment_pool_id")
    return None if told is None or tuple(told) == _COMMON else ":".join(map(str, told))


def graph_pools_of(segments: Iterable[Mapping[str, Any]] | None) -> GraphPools:
    """How many pools of graphs there are, and what they have reserved."""
    found = list(segments or ())
    if segments is None or any("segment_pool_id" not in segment for segment in found):
        return GraphPools()
    sizes = [(pool_of(segment), segment["total_size"]) for segment in found]
    own = [(pool, size) for pool, size in sizes if pool is not None]
    return GraphPools(len({pool for pool, _ in own}), sum(size for _, size in own))
