"""The ranks of a job beside each other: what each does, where it is, and what its last step took.

Rules of this file: who runs is asked for a sign of life, all else comes from the records; one that
does not answer is part of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ask.many import membership_of
from ..target import Target
from .overview_ranks import state_of

if TYPE_CHECKING:
    from ...cluster.job.membership import Member, Membership

Row = Mapping[str, Any]

_LAST_STEPS = """
    SELECT host, pid, max(step) AS step,
      arg_max(duration, step) AS duration, arg_max(data_wait_s, step) AS data_wait_s,
      arg_max(gradient_sync_s, step) AS sync_s, arg_max(loss, step) AS loss
    FROM python.steps WHERE duration IS NOT NULL GROUP BY host, pid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One rank, or one process without a rank.

    Attributes:
        step: The last step that it has ended; None where none is on record.
        duration_s: What that took, and of it the waits for data and for other ranks.
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
    from ...cluster.union.query import Union

    membership = membership_of(target, states=True)
    answer = Union(membership.members, token=target.token).query(
        _LAST_STEPS, timeout_s=target.limit_s
    )
    last = {(row["host"], row["pid"]): row for row in answer.to_pylist()}
    errors = [o.error for o in answer.outcomes if o.error is not None]
    is_lost = bool(errors) and not any(o.state == "answered" for o in answer.outcomes)
    return RankGrid(
        label=_label(membership),
        expected=membership.world_size,
        cells=tuple(_cell(m, last.get((m.host, m.pid), {})) for m in membership.members),
        exit_code=errors[0].exit_code if is_lost else 0,
    )


def _label(membership: Membership) -> str:
    return f"job {membership.job}" if membership.job else membership.label


def _cell(member: Member, last: Row) -> GridCell:
    return GridCell(
        name=member.name,
        rank=member.rank,
        job=member.job,
        host=member.host,
        pid=member.pid,
        state=state_of(member),
        step=last.get("step"),
        duration_s=last.get("duration"),
        data_wait_s=last.get("data_wait_s"),
        sync_s=last.get("sync_s"),
        loss=last.get("loss"),
    )
