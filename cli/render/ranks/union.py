"""A statement over many processes: what each part of it runs where, and what it moved.

Rules of this file: pure; plans in, text out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..text import escape_lines, plural

if TYPE_CHECKING:
    from ....cluster.union.statements.leaves import Plan

_UNITS = ("B", "kB", "MB", "GB")


def render_plan(plan: Plan) -> str:
    """The SQL that every process answers, and the SQL that runs over the answers."""
    lines = []
    for leaf in plan.leaves:
        lines += ["on every process:", f"  {leaf.sql(added=None)}"]
        if leaf.choices:
            lines.append(f"  of those processes alone where {' or '.join(leaf.choices)}")
    if not plan.leaves:
        lines.append("on every process: all rows of each table whose scan begins")
    what = ", ".join(plan.pushed) or "columns alone; rows are moved"
    lines += [f"pushed: {what}", "where the answers meet:", f"  {plan.root}"]
    return escape_lines("\n".join(lines))


def render_moved(*, rows: int, size: int) -> str:
    """How much came from the processes."""
    amount, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if amount < 999.5 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{plural(rows, 'row')}, {amount:.3g} {unit} moved"
