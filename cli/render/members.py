"""The ranks of a job: those expected beside those seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .table import Heading, render_table
from .text import escape_controls, render_count

if TYPE_CHECKING:
    from ...job.membership import Member, Membership


def render_members(membership: Membership, *, width: int | None, color: bool) -> str:
    """One line for each member, the missing ones among them, under a line on the whole.

    The job and the node server only where there are several.
    """
    members = membership.members
    columns = [("rank", True), ("host", False), ("pid", True), ("state", False), ("step", True)]
    columns.append(("attempt", True))
    rows = [_row(member) for member in members]
    if len({m.job for m in members if m.rank is not None or m.pid is not None}) > 1:
        columns.insert(0, ("job", False))
        for row, member in zip(rows, members, strict=True):
            row.insert(0, escape_controls(member.job or ""))
    if any(member.via for member in members):
        columns.append(("through", False))
        for row, member in zip(rows, members, strict=True):
            row.append(escape_controls(member.via or ""))
    headings = [Heading(name=name, is_number=is_number) for name, is_number in columns]
    table = render_table(headings, rows, width=width, color=color)
    return f"{_head(membership)}\n{table}"


def _head(membership: Membership) -> str:
    """What was looked for, and how much of it was seen."""
    name = f"job {membership.job}" if membership.job else membership.label
    ranks = {member.rank for member in membership.seen if member.rank is not None}
    if membership.world_size is None:
        return escape_controls(f"{name}: {len(membership.seen)} processes seen")
    return escape_controls(f"{name}: {len(ranks)} of {membership.world_size} ranks seen")


def _row(member: Member) -> list[str]:
    """The cells of one member."""
    is_missing = member.state == "missing"
    where = member.endpoint if is_missing and member.rank is None else member.host
    return [
        "" if member.rank is None else str(member.rank),
        escape_controls(where),
        "" if member.pid is None else str(member.pid),
        "missing" if is_missing else member.state_word or "",
        render_count(member.step),
        "" if is_missing and member.rank is None else str(member.attempt),
    ]
