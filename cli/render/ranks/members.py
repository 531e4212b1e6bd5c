"""The ranks of a job: those expected beside those seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..table import columns, render_table
from ..text import escape_controls, render_count

if TYPE_CHECKING:
    from ....cluster.job.membership import Member, Membership


def render_members(membership: Membership, *, width: int | None, color: bool) -> str:
    """One line for each member, under a line on the whole; missing neighbours share theirs.

    The job and the node server only where there are several.
    """
    members, names = _shown(membership.members)
    headings = columns(">rank", "host", ">pid", "state", ">step", ">attempt")
    rows = [_row(member, name) for member, name in zip(members, names, strict=True)]
    if len({m.job for m in members if m.rank is not None or m.pid is not None}) > 1:
        headings[:0] = columns("job")
        for row, member in zip(rows, members, strict=True):
            row.insert(0, member.job or "")
    if any(member.via for member in members):
        headings += columns("through")
        for row, member in zip(rows, members, strict=True):
            row.append(member.via or "")
    table = render_table(headings, rows, width=width, color=color)
    return f"{_head(membership)}\n{table}"


def _head(membership: Membership) -> str:
    """What was looked for, and how much of it was seen."""
    name = f"job {membership.job}" if membership.job else membership.label
    ranks = {member.rank for member in membership.seen if member.rank is not None}
    if membership.world_size is None:
        number = len(membership.seen)
        noun = "process" if number == 1 else "processes"
        return escape_controls(f"{name}: {number} {noun} seen")
    return escape_controls(f"{name}: {len(ranks)} of {membership.world_size} ranks seen")


def _shown(members: Sequence[Member]) -> tuple[list[Member], list[str]]:
    """The members that have a line, and what stands there as the rank."""
    kept: list[Member] = []
    last: list[int | None] = []
    for member in members:
        if kept and _is_next(member, kept[-1], last[-1]):
            last[-1] = member.rank
            continue
        kept.append(member)
        last.append(member.rank)
    return kept, [_span(member.rank, end) for member, end in zip(kept, last, strict=True)]


def _is_next(member: Member, before: Member, rank: int | None) -> bool:
    """Whether a member goes into the line of the one before it, which ends with a rank."""
    if (before.state, before.job) != (member.state, member.job) or member.state != "missing":
        return False
    return member.rank == (None if rank is None else rank + 1)


def _span(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return str(first) if first == last else f"{first}-{last}"


def _row(member: Member, name: str) -> list[str]:
    """The cells of one member, or of several that are missing."""
    is_missing = member.state == "missing"
    where = member.endpoint if is_missing and member.rank is None else member.host
    return [
        name,
        where,
        "" if member.pid is None else str(member.pid),
        "missing" if is_missing else member.state_word or "",
        render_count(member.step),
        "" if is_missing and member.rank is None else str(member.attempt),
    ]
