"""The commonest mistakes that keep memory, each by name, with its evidence and the way out.

Rules of this file: pure functions of rows of python.leaks and python.leak_steps. One rule per
mistake; the first that fits a row names it. What keeps a graph alive and what that graph keeps
are one mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...messages.frozen import dataclass
from .series import Point, classify
from .words import WAYS_OUT, variable_of

Row = Mapping[str, Any]

LEAST_STALE = 3
LEAST_RISES = 3
"""In so many steps, at least, the pools of graphs must have grown: a few are captured at first."""
_PER_PARAMETER = {"gradients": 1, "optimizer_state": 8}
"""So many storages of a category a parameter has at most, by one optimizer."""
_FILLING = {"bounded", "first_gradients"}
"""What ends by itself."""
_WHEREVER = {"modules", "optimizer", "first_gradients"}
"""Mistakes that are one, whoever refers to the tensors."""
_SCALARS = ("[]", "[1]", "[1,1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that grows, or is not as it should be.

    Attributes:
        mistake: Its name; one of the keys of `WAYS_OUT`.
        is_leak: Whether memory grows by it.
        bytes_per_step: By how much; None where that is not counted in bytes.
        tensors_per_step: By how many storages, those of a graph among them.
        rows: The rows of python.leaks that show it; none for one that the steps show.
        evidence: The query that gives them.
        instead: What to write in the code instead.
    """

    mistake: str
    is_leak: bool
    rows: tuple[Row, ...]
    evidence: str
    instead: str
    bytes_per_step: float | None = None
    tensors_per_step: float | None = None


def findings_of(rows: Sequence[Row], steps: Sequence[Row]) -> tuple[Finding, ...]:
    """What is wrong, the largest growth first.

    Args:
        rows: Those of python.leaks.
        steps: Those of python.leak_steps.
    """
    named: dict[tuple[str, Any, Any], list[Row]] = {}
    owners: dict[tuple[Any, Any], tuple[str, Any, Any]] = {}
    filling = _filling_categories(steps)
    tensors = {row["path"] for row in rows if row["category"] is not None}
    own = [row for row in rows if row["name"] != "items" or f"{row['path']}[...]" not in tensors]
    for row in sorted(own, key=lambda row: row["holder"] == "graph"):
        place = row["path"], row["place"]
        mistake = _mistake_of(row)
        if mistake in _WHEREVER and row["category"] in filling:
            mistake = "first_gradients"
        key = (mistake, None, None) if mistake in _WHEREVER else (mistake, *place)
        if row["holder"] == "graph" and place in owners:
            key = owners[place]
        named.setdefault(key, []).append(row)
        if row["has_graph"] and row["holder"] != "graph":
            owners.setdefault(place, key)
    found = [_finding(key[0], shown) for key, shown in named.items()]
    found.sort(key=lambda finding: (not finding.is_leak, -(finding.bytes_per_step or 0)))
    return (*_graph_pools(steps), *found, *_stale(steps))


def _finding(mistake: str, rows: list[Row]) -> Finding:
    sizes = [row["bytes_per_step"] for row in rows if row["bytes_per_step"] is not None]
    numbers = [row["tensors_per_step"] for row in rows if row["tensors_per_step"] is not None]
    name = variable_of(rows[0]["path"])
    return Finding(
        mistake=mistake,
        is_leak=mistake not in _FILLING,
        rows=tuple(rows),
        evidence="FROM python.leaks",
        instead=WAYS_OUT[mistake].format(name=name),
        bytes_per_step=sum(sizes) if sizes else None,
        tensors_per_step=sum(numbers) if numbers else None,
    )


def _filling_categories(steps: Sequence[Row]) -> set[str]:
    """What parameters have from their first gradient on, where they themselves are no more.

    A mixture of experts meets some of them late. More than each parameter may have of it is kept
    by something else, such as an optimizer that is made anew.
    """
    sizes = {(row["step"], row["category"]): row["tensors"] for row in steps}
    modules = {row["step"]: row["modules"] for row in steps}
    if not sizes:
        return set()
    first, last = min(modules), max(modules)
    weights = sizes.get((last, "parameters"), 0)
    if weights > sizes.get((first, "parameters"), 0) or modules[last] > modules[first]:
        return set()
    return {
        category
        for category, most in _PER_PARAMETER.items()
        if 0 < sizes.get((last, category), 0) <= most * weights
    }


def _stale(steps: Sequence[Row]) -> tuple[Finding, ...]:
    """Gradients that each step adds to those of the step before."""
    seen = {row["step"]: row["stale_gradients"] for row in steps}
    told = [stale for stale in seen.values() if stale is not None]
    if len(told) < LEAST_STALE or not all(told):
        return ()
    return (
        Finding(
            mistake="zero_grad",
            is_leak=False,
            rows=(),
            evidence="SELECT DISTINCT step, stale_gradients FROM python.leak_steps",
            instead=WAYS_OUT["zero_grad"],
        ),
    )


def _graph_pools(steps: Sequence[Row]) -> tuple[Finding, ...]:
    """Pools of CUDA graphs that grow from step to step."""
    seen = {row["step"]: row.get("graph_pool_bytes") for row in steps}
    points = [Point(step, float(size)) for step, size in sorted(seen.items()) if size is not None]
    rises = sum(later.value > one.value for one, later in pairwise(points))
    if len(points) < len(seen) or rises < LEAST_RISES or not classify(points).grows:
        return ()
    return (
        Finding(
            mistake="graph_pools",
            is_leak=True,
            rows=(),
            evidence="SELECT DISTINCT step, graph_pools, graph_pool_bytes FROM python.leak_steps",
            instead=WAYS_OUT["graph_pools"],
            bytes_per_step=(points[-1].value - points[0].value) / (len(points) - 1),
        ),
    )


def _mistake_of(row: Row) -> str:
    """The name of the first rule that fits."""
    return next(name for name, fits in _RULES if fits(row))


def _is_scalar(row: Row) -> bool:
    return str(row["shape"]).endswith(_SCALARS)


def _is_count(name: str) -> Callable[[Row], bool]:
    """Whether a row is about something that is no storage."""
    return lambda row: row["name"] == name and row["category"] is None


_RULES: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("bounded", lambda row: row["bound"] is not None),
    *[(name, _is_count(name)) for name in ("hooks", "descriptors", "threads", "items", "workers")],
    ("traceback", lambda row: row["holder"] == "traceback"),
    ("cycle", lambda row: row["holder"] == "cycle"),
    ("modules", lambda row: row["category"] in {"parameters", "buffers", "gradients"}),
    ("optimizer", lambda row: row["category"] == "optimizer_state"),
    ("batches", lambda row: bool(row["was_input"])),
    ("loss", lambda row: bool(row["has_graph"]) and _is_scalar(row)),
    ("outputs", lambda row: bool(row["has_graph"])),
    ("graph", lambda row: row["category"] == "activations"),
    ("numbers", _is_scalar),
    ("tensors", lambda _: True),
)
