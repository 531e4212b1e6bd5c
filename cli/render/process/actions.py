"""What came of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....cluster.job.rank_sets import rank_set
from ....cluster.ranks.naming import Rank, rank_words
from ....units import age, duration, size
from ..table import columns, render_table
from ..text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ....messages.about.act import Act, Change


def render_act(act: Act) -> str:
    """What goes to stdout: each change on a line, from what to what."""
    lines = [_change(change) for change in act.changes] or ["nothing was changed"]
    at = "" if act.step is None else f" before step {act.step}"
    paused = "" if act.pause_s is None else f"; training paused for {duration(act.pause_s)}"
    undo = f"; `act undo {act.number}` takes it back" if act.undo else ""
    return "\n".join([*lines, f"action {act.number} ({act.name}): {act.state}{at}{paused}{undo}"])


def render_together(acts: Mapping[Rank, Act], *, job: str | None = None) -> str:
    """What goes to stdout for several ranks; those with equal changes once.

    Args:
        job: Whose ranks they are, in words.
    """
    of = f" of {escape_controls(job)}" if job else ""
    groups: dict[tuple[Change, ...], list[Rank]] = {}
    for rank, act in acts.items():
        groups.setdefault(act.changes, []).append(rank)
    lines = []
    for changes, ranks in groups.items():
        lines += [_change(change) for change in changes] or ["nothing was changed"]
        lines.append(_summary(f"{rank_words(ranks)}{of}", [acts[rank] for rank in ranks]))
    return "\n".join(lines)


def _summary(who: str, acts: Sequence[Act]) -> str:
    """Where several ranks have applied it, and how long that took at most."""
    states = ", ".join(dict.fromkeys(act.state or "waiting" for act in acts))
    steps = sorted({act.step for act in acts if act.step is not None})
    at = f" before step{'s' if len(steps) > 1 else ''} {rank_set(steps)}" if steps else ""
    pauses = [act.pause_s for act in acts if act.pause_s is not None]
    longest = "at most " if len(pauses) > 1 else ""
    paused = f"; training paused for {longest}{duration(max(pauses))}" if pauses else ""
    undo = "; `act undo` takes it back" if any(act.undo for act in acts) else ""
    return f"{who} ({acts[0].name}): {states}{at}{paused}{undo}"


def act_notes(act: Act) -> Sequence[str]:
    """What stderr should say beside that."""
    return act.notes


def render_acts(acts: Sequence[Act], *, width: int | None) -> str:
    """The last actions."""
    if not acts:
        return "no actions yet"
    headings = columns(
        ">id", "action", "arguments", "state", ">step", "=ago", "=paused", "undo", "who", "changes"
    )
    rows = [
        [
            str(act.number),
            act.name,
            act.arguments,
            act.state or "waiting",
            None if act.step is None else str(act.step),
            age(act.age_s),
            None if act.pause_s is None else duration(act.pause_s),
            "yes" if act.undo else "no",
            act.who,
            "; ".join(_change(change) for change in act.changes),
        ]
        for act in acts
    ]
    return render_table(headings, rows, width=width, color=False)


_BYTES = ", bytes"
"""How the names of counts of bytes end."""


def _change(change: Change) -> str:
    """One change in words; what it counts in bytes as people read that."""
    what, before, after = change.what, change.before, change.after
    if what.endswith(_BYTES):
        what = what.removesuffix(_BYTES)
        before, after = (None if n is None else size(int(n)) for n in (before, after))
    if before is None:
        return f"{what}: {after}"
    return f"{what}: {before} -> {'off' if after is None else after}"
