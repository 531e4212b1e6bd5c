"""The ranks of a job beside each other: what each does, where it is, and what its last step took.

Rules of this file: who runs is asked for a sign of life, all else comes from the records; one that
does not answer is part of the grid.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...client.recent_steps import last_ended, last_known, pace_of, recent_steps, state_with
from ...messages.frozen import dataclass
from ...rundir.folders import folder_at
from ..ask.many import membership_of
from ..target import Target
from .overview_ranks import state_of

if TYPE_CHECKING:
    from ...client.base import Process
    from ...cluster.job.membership import Member, Membership

Row = Mapping[str, Any]
KnownSteps = MutableMapping[str, Sequence[Row]]
"""The newest steps of processes, by endpoint."""

COUNTED = 20
"""Of how many ended steps the figures over several are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One rank, or one process without a rank.

    Attributes:
        step: The last step that it has ended; None where none is on record.
        duration_s: What that took, and of it the waits for data and for other ranks.
        loss: Of the last step of which it is known.
        step_s: The median of its last steps.
        phases: What these spent in each phase, in seconds each.
        memory_bytes: What an accelerator's allocator had given out at the last one's end, else the
            resident set.
        is_late: Whether it has not answered in time: its figures are those of an earlier look.
        endpoint: How it is asked.
        target: What a person types for it; empty where it is not seen.
        script: The file that it runs, without its folder; empty of a process elsewhere.
    """

    name: str
    rank: int | None
    job: str | None
    host: str
    pid: int | None
    state: str
    step: int | None
    duration_s: float | None
    data_wait_s: float | None
    sync_s: float | None
    loss: float | None
    step_s: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None
    is_late: bool = False
    endpoint: str = ""
    target: str = ""
    script: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGrid:
    """All of them.

    Attributes:
        label: What was asked for, or the name of the one job.
        expected: How many ranks that has; None for none or several.
        exit_code: What the command ends with: that of a failure where nobody has answered.
    """

    label: str
    expected: int | None
    cells: tuple[GridCell, ...]
    exit_code: int = 0


def grid_of(target: Target) -> RankGrid:
    """Look at all that the endpoints mean.

    Raises:
        ProbingError: There is none.
    """
    return grid_of_members(
        membership_of(target, states=True), timeout_s=target.limit_s, token=target.token
    )


def grid_of_members(
    membership: Membership,
    *,
    timeout_s: float,
    token: str | None = None,
    known: KnownSteps | None = None,
) -> RankGrid:
    """Look at these.

    Args:
        known: The steps that an earlier look has read; has those of this one afterwards.
    """
    from ...cluster.job.outcomes import ask_all, why_nobody

    steps: KnownSteps = {} if known is None else known

    def ask(process: Process, member: Member) -> tuple[str, Sequence[Row]]:
        rows = recent_steps(process, COUNTED, steps.get(member.endpoint, ()))
        steps[member.endpoint] = rows
        return _state(process, member, rows), rows

    outcomes = ask_all(membership.members, ask, timeout_s=timeout_s, token=token)
    lost = why_nobody(outcomes)
    return RankGrid(
        label=f"job {membership.job}" if membership.job else membership.label,
        expected=membership.world_size,
        cells=tuple(
            _late_cell(o.member, steps.get(o.member.endpoint, ()))
            if o.value is None
            else _cell(o.member, *o.value)
            for o in outcomes
        ),
        exit_code=0 if lost is None else lost.exit_code,
    )


def _state(process: Process, member: Member, rows: Sequence[Row]) -> str:
    from ...client.listing import summarize

    word = member.state_word
    if word is None and process.folder is not None:
        word = summarize(process.folder).state
    return state_with(state_of(member) if word is None else word, pace_of(rows))


def _late_cell(member: Member, rows: Sequence[Row]) -> GridCell:
    """Of one that has not answered: what it did last says nothing of its state now."""
    return dataclasses.replace(_cell(member, state_of(member), rows), is_late=True)


def _cell(member: Member, state: str, rows: Sequence[Row]) -> GridCell:
    last, pace = last_ended(rows), pace_of(rows)
    return GridCell(
        name=member.name,
        rank=member.rank,
        job=member.job,
        host=member.host,
        pid=member.pid,
        state=state,
        step=last.get("step"),
        duration_s=last.get("duration"),
        data_wait_s=last.get("data_wait_s"),
        sync_s=last.get("gradient_sync_s"),
        loss=last_known(rows, "loss"),
        step_s=None if pace is None else pace.step_s,
        phases={} if pace is None else pace.phases,
        memory_bytes=last.get("allocated_bytes"),
        endpoint=member.endpoint,
        target=member.target if member.state == "seen" else "",
        script=_script(member.endpoint),
    )


@functools.lru_cache(maxsize=4096)
def _script(endpoint: str) -> str:
    """What a process of this machine runs, by its card: a file of Python, or a module."""
    folder = folder_at(Path(endpoint)) if endpoint.startswith("/") else None
    card = None if folder is None else folder.read_card()
    words = [] if card is None else list(card.command)
    files = [word for word in words if word.endswith(".py")]
    if files:
        return Path(files[0]).name
    return words[words.index("-m") + 1] if "-m" in words[:-1] else ""
