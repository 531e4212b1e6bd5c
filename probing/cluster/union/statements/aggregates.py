"""Aggregates that can be computed in two steps: a part on each rank, and the parts merged.

Rules of this file: only those are here whose merged value is that over all rows. Counts, minima,
maxima and sums of integers are exact. Sums and averages of floating-point numbers are those of
another order of addition, and variances are merged by the difference of means (Chan, Golub and
LeVeque), so that both differ from a single pass by rounding alone.
"""

from __future__ import annotations

from ....messages.frozen import dataclass
from .syntax import Syntax, Tree, arguments, function_name

_SAME = frozenset(
    {"any_value", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "max", "min"}
)
_ARG = {
    **dict.fromkeys(("arg_max", "argmax", "max_by"), ("max", "arg_max")),
    **dict.fromkeys(("arg_min", "argmin", "min_by"), ("min", "arg_min")),
}
_SPREAD = {
    **dict.fromkeys(("var_samp", "variance"), "CASE WHEN {n} > 1 THEN {m2} / ({n} - 1) END"),
    "var_pop": "CASE WHEN {n} > 0 THEN {m2} / {n} END",
    **dict.fromkeys(("stddev", "stddev_samp"), "sqrt(CASE WHEN {n} > 1 THEN {m2} / ({n} - 1) END)"),
    "stddev_pop": "sqrt(CASE WHEN {n} > 0 THEN {m2} / {n} END)",
}
_SUM_TYPES = ("BIGINT", "DECIMAL", "DOUBLE", "HUGEINT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """An aggregate in two steps.

    Attributes:
        partials: What a rank computes, as SQL.
        merged: What is made of that, as SQL; ``{0}`` is the first partial's column.
        mean: Two partials, a count and an average, whose average over all ranks ``merged`` reads
            as ``{mean}``.
    """

    partials: tuple[str, ...]
    merged: str
    mean: tuple[int, int] | None = None


def halves_of(syntax: Syntax, call: Tree, kind: str) -> Halves | None:
    """The two steps of an aggregate; None for one that needs all rows in one place.

    Args:
        kind: The type of its value, as DuckDB calls it.
    """
    inputs = arguments(call)
    if call.get("distinct") or (call.get("order_bys") or {}).get("orders"):
        return None
    if not all(syntax.is_steady(part) for part in [*inputs, *_condition(call)]):
        return None
    texts = [syntax.expression_text(part) for part in inputs]
    conditions = [syntax.expression_text(part) for part in _condition(call)]
    halves = _halves(function_name(call), texts, conditions, kind)
    if halves is None or "{" in "".join(texts + conditions):  # braces would be taken for places
        return None
    return halves


def _condition(call: Tree) -> list[Tree]:
    """The condition of its FILTER clause, if it has one."""
    found = call.get("filter")
    return [found] if found else []


def _filter(conditions: list[str]) -> str:
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def _halves(name: str, inputs: list[str], conditions: list[str], kind: str) -> Halves | None:
    """The two steps of a function by its name."""
    only = _filter(conditions)
    x = inputs[0] if inputs else ""
    if name == "count_star" or (name == "count" and len(inputs) <= 1):
        counted = f"count({x or '*'}){only}"
        return Halves(partials=(counted,), merged="coalesce(sum({0}), 0)")
    if name in _ARG and len(inputs) == 2:
        best, function = _ARG[name]
        known = _filter([*conditions, f"({x} IS NOT NULL)"])
        parts = (f"{function}({x}, {inputs[1]}){only}", f"{best}({inputs[1]}){known}")
        return Halves(partials=parts, merged=f"{function}({{0}}, {{1}})")
    if len(inputs) != 1:
        return None
    if name in _SAME:
        return Halves(partials=(f"{name}({x}){only}",), merged=f"{name}({{0}})")
    if name == "sum" and kind.startswith(_SUM_TYPES):
        return Halves(partials=(f"sum({x}){only}",), merged="sum({0})")
    if name in ("avg", "mean") and kind == "DOUBLE":
        parts = (f"sum({x}){only}", f"count({x}){only}")
        merged = "CAST(sum({0}) AS DOUBLE) / sum({1})"
        return Halves(partials=parts, merged=merged)
    if name in _SPREAD and kind == "DOUBLE":
        spread = (f"count({x}){only}", f"avg({x}){only}", f"var_pop({x}){only}")
        squares = "sum({0} * {2} + {0} * ({1} - {mean}) * ({1} - {mean}))"
        merged = _SPREAD[name].format(n="sum({0})", m2=squares)
        return Halves(partials=spread, merged=merged, mean=(0, 1))
    return None
