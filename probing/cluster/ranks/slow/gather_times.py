"""Asks the ranks of a job what they spent their last steps on.

Rules of this file: only the last steps that all ranks have finished, and only the columns that are
read. Ranks are asked at moments that are apart, so which steps these are is found out first. A
rank without a record of collectives tells of its steps alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import ProbingError, SqlError
from ....tables import STEP_PHASES, STEPS
from ...job.outcomes import Outcome
from ..naming import Rank
from .clocks import Meeting
from .times import COSTS, MESSAGES, Collective, DeviceStep, RankTimes, Span, Step

if TYPE_CHECKING:
    from ....client.base import Process
    from ...job.members import Member
    from ..question import Asking

_DONE = "SELECT max(step) AS step FROM python.steps WHERE duration_ns IS NOT NULL"
_STEPS = (
    "SELECT 'step' AS kind, step, start_ns, duration, gradient_sync_s, device_s, {columns}"
    " FROM python.steps WHERE duration_ns IS NOT NULL AND step BETWEEN {first} AND {last}"
)
_SPANS = (
    "SELECT 'span' AS kind, stage, start_ns, duration_ns FROM python.torch_trace"
    " WHERE depth = 0 AND stage IN ('forward', 'backward', 'optimizer')"
    " AND duration_ns IS NOT NULL AND step BETWEEN {first} AND {last}"
)
_COLLECTIVES = (
    "SELECT 'collective' AS kind, process_group, seq, op, step, start_ns, duration_ns, wait_ns,"
    " group_size, is_async, peer FROM python.collectives WHERE step BETWEEN {first} AND {last}"
)
_TIMED = (
    " FROM python.{} WHERE {} step IN (SELECT step FROM python.collectives"
    " WHERE device_s IS NOT NULL AND step <= {{last}} GROUP BY step ORDER BY step DESC"
    " LIMIT {{number}})"
)
_DEVICE = (
    "SELECT 'timed' AS kind, step, start_ns, device_s, {columns}"
    + _TIMED.format("steps", "device_s IS NOT NULL AND"),
    "SELECT 'took' AS kind, process_group, seq, op, step, start_ns, device_s, group_size"
    + _TIMED.format("collectives", ""),
    "SELECT 'clock' AS kind, max(start_ns) AS start_ns, median(sm_mhz) AS sm_mhz,"
    " mode(throttled) AS throttled FROM (FROM python.devices ORDER BY start_ns DESC LIMIT 20)"
    " HAVING count(*) > 0",
)
_COUNTED = tuple(name for name in COSTS if name in {column.name for column in STEPS.columns})
_KINDS = ("step", "span", "collective", "timed", "took", "clock")
_TOGETHER = " UNION ALL BY NAME "


def gather_times(
    asking: Asking, *, last: int
) -> tuple[tuple[RankTimes, ...], tuple[Outcome[RankTimes], ...]]:
    """What every member that answers spent on the last steps that all have finished.

    Args:
        last: How many steps.
    """
    done = _last_common_step(asking)
    bounds = {"first": done - last + 1, "last": done, "number": last}
    names = asking.names
    outcomes = asking.ask(
        lambda process, member: _times_of(process, member, names[member], bounds),
    )
    return tuple(outcome.value for outcome in outcomes if outcome.value is not None), outcomes


def _last_common_step(asking: Asking) -> int:
    """The last step that all have finished who have finished any; 0 where nobody has."""
    in_hand = [m.step for m in asking.members if m.state == "seen"]
    known = [step - 1 for step in in_hand if step is not None]
    if len(known) < len(in_hand):
        outcomes = asking.ask(lambda process, _: process.query(_DONE).to_pylist()[0]["step"] or 0)
        known = [outcome.value for outcome in outcomes if outcome.value]
    return min((step for step in known if step > 0), default=0)


def _parts(bounds: dict[str, int], *, with_costs: bool = True) -> list[str]:
    """The statements, that of collectives last of those that every agent understands."""
    names = [*(f"{phase}_s" for phase in STEP_PHASES), *(_COUNTED if with_costs else ())]
    words = {"columns": ", ".join(names), **bounds}
    parts = (_STEPS, _SPANS, _COLLECTIVES, *(_DEVICE if with_costs else ()))
    return [part.format(**words) for part in parts]


def _times_of(process: Process, member: Member, rank: Rank, bounds: dict[str, int]) -> RankTimes:
    rows = _rows(process, bounds)
    rows.sort(key=lambda row: row["start_ns"])
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in _KINDS}
    clock = next(iter(of["clock"]), {})
    return RankTimes(
        rank=rank,
        job=member.job,
        number=member.rank,
        host=member.host,
        device=member.local_rank,
        steps=tuple(map(_step, of["step"])),
        collectives=tuple(map(_collective, of["collective"])),
        spans=tuple(map(_span, of["span"])),
        device_steps=tuple(_device_steps(of["timed"], of["took"])),
        sm_mhz=clock.get("sm_mhz"),
        throttled=clock.get("throttled"),
    )


def _rows(process: Process, bounds: dict[str, int]) -> list[dict[str, Any]]:
    """All rows, or those that an agent of an older version has: without costs, or collectives."""
    older = _parts(bounds, with_costs=False)
    for parts in (_parts(bounds), older):
        try:
            return process.query(_TOGETHER.join(parts)).to_pylist()
        except ProbingError as error:
            if not error.is_a(SqlError):
                raise
    return process.query(_TOGETHER.join(older[:2])).to_pylist()


def _step(row: dict[str, Any]) -> Step:
    return Step(
        step=row["step"],
        start_ns=row["start_ns"],
        duration_s=row["duration"],
        phases=_phases(row),
        sync_s=row["gradient_sync_s"],
        costs=_costs(row),
        device_s=row["device_s"],
    )


def _phases(row: dict[str, Any]) -> dict[str, float]:
    known = {phase: row[f"{phase}_s"] for phase in STEP_PHASES}
    return {phase: seconds for phase, seconds in known.items() if seconds is not None}


def _costs(row: dict[str, Any]) -> dict[str, float]:
    return {name: row[name] for name in COSTS if row.get(name) is not None}


def _device_steps(
    timed: Sequence[dict[str, Any]], took: Sequence[dict[str, Any]]
) -> Iterator[DeviceStep]:
    """The steps that were timed on the device, with what their collectives took there."""
    for row in timed:
        yield DeviceStep(
            step=row["step"],
            device_s=row["device_s"],
            phases=_phases(row),
            costs=_costs(row),
            took_s=dict(_took(one) for one in took if one["step"] == row["step"]),
        )


def _took(row: dict[str, Any]) -> tuple[Meeting, tuple[float | None, int]]:
    """What a collective took there; of a message it is not known how much of that is a wait."""
    group, is_message = row["process_group"], row["op"] in MESSAGES
    name = f"{group} {row['op']}" if is_message else group
    return (name, row["seq"]), (None if is_message else row["device_s"], row["group_size"])


def _collective(row: dict[str, Any]) -> Collective:
    duration, wait = row["duration_ns"], row["wait_ns"]
    return Collective(
        group=row["process_group"],
        seq=row["seq"],
        op=row["op"],
        step=row["step"],
        start_ns=row["start_ns"],
        end_ns=None if duration is None else row["start_ns"] + duration,
        size=row["group_size"],
        blocked_s=None if wait is None else wait * 1e-9,
        is_async=bool(row["is_async"]),
        peer=row["peer"],
    )


def _span(row: dict[str, Any]) -> Span:
    return Span(
        phase=row["stage"], start_ns=row["start_ns"], end_ns=row["start_ns"] + row["duration_ns"]
    )
