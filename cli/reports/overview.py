"""What one screen shows of a process, put together from its record.

Rules of this file: nothing is asked that holds the training or that it takes part in: its record,
the kernel, and a sign that its agent is there. What was not measured is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import NotProbed, ProbingError
from ...postmortem.not_finite import SINCE, NotFinite, since_of
from ...tables import STEP_PHASES
from ..questions.library import OWN_TIMES
from ..questions.records import put_in
from .cheap_findings import find_cheaply
from .overview_memory import LAST_MEMORY, MemoryUse, memory_of
from .overview_ranks import RankStates, ranks_of

if TYPE_CHECKING:
    from ...client.base import Process
    from ...client.listing import ProcessSummary
    from ...diagnosis.doctor.findings import Finding
    from ...messages.card import Card

Row = Mapping[str, Any]

STILL = "no step ends"
"""The state of a process that has made steps, and has made none for long."""
_WINDOW = 100
_CURVE = 400
_MOST_MODULES = 5
_STILL_S, _STILL_STEPS = 10.0, 5.0
_PHASES = (*STEP_PHASES[:5], "gradient_sync", *STEP_PHASES[5:])
_STEPS = (  # our own columns and numbers are all that is put in
    "SELECT step, duration, loss, tokens_per_s, samples, device_s,"  # noqa: S608
    f" {', '.join(f'{phase}_s' for phase in _PHASES)},"
    " (epoch_ns(now()) - start_ns) / 1e9 AS age_s"
    f" FROM python.steps ORDER BY seq DESC LIMIT {_CURVE}"
)
_ASKED = {
    "steps": _STEPS,
    "modules": put_in(f"{OWN_TIMES} LIMIT {_MOST_MODULES}", {"steps": "20"}),
    "not_finite": SINCE,
    "memory": LAST_MEMORY,
}
_AS_LIST = "(SELECT list(x) FROM ({}) AS x) AS {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Where a training is and how fast.

    Attributes:
        step: The newest step on record, the one in progress among them.
        age_s: How long ago it began.
        counted: How many of the newest ended steps the figures are of.
        step_s: Their median duration.
        losses: The losses of the newest steps, oldest first; None where one is not known.
        first_step: The step of the first of these losses.
        phases: What the counted steps spent in each phase, in seconds each, together the whole.
        device_s: The median time of a step on the device; None without one.
    """

    step: int
    age_s: float
    counted: int
    step_s: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    losses: tuple[float | None, ...]
    first_step: int | None
    phases: Mapping[str, float]
    device_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A process on one screen.

    Attributes:
        endpoint: How it was named.
        state: As in `probing list`; or that no step ends any more.
        problems: What is wrong with its agent, or how it ended.
        pace: None where no step is on record.
        modules: The slowest by their own code: `module`, `class`, `calls`, `own_s` of a step.
        ranks: The other processes of its job; None where it has none.
        findings: The gravest of what its record alone shows to be wrong.
        judged: How many rules could be judged by that; 0 where there is nothing to go by.
    """

    endpoint: str
    pid: int
    host: str
    command: str
    rank: int | None
    world_size: int | None
    state: str
    problems: tuple[str, ...] = ()
    pace: Pace | None = None
    not_finite: NotFinite | None = None
    memory: MemoryUse | None = None
    modules: tuple[Row, ...] = ()
    ranks: RankStates | None = None
    findings: tuple[Finding, ...] = ()
    judged: int = 0
    has_torch: bool | None = None


def overview_of(process: Process) -> Overview:
    """Look at a process.

    Raises:
        ProbingError: It is not there, or nothing can be learnt of it.
    """
    try:
        card = process.status()
    except NotProbed:
        outside = _from_outside(process)
        if outside is None:
            raise
        return outside
    summary = _summary(process)
    told = process.query(
        "SELECT " + ", ".join(_AS_LIST.format(sql, name) for name, sql in _ASKED.items())
    ).to_pylist()[0]
    pace = _pace(told["steps"] or [])
    state = _state(summary, pace)
    findings, judged = find_cheaply(process, card) if pace is not None else ((), 0)
    return Overview(
        endpoint=process.label,
        pid=card.pid,
        host=card.host,
        command=" ".join(card.command),
        rank=card.rank,
        world_size=card.world_size,
        state=state,
        problems=_problems(process, card, summary),
        pace=pace,
        not_finite=since_of(told["not_finite"] or []),
        memory=memory_of(process, told["memory"] or [], is_alive=state != "dead"),
        modules=tuple(told["modules"] or ()),
        ranks=ranks_of(process, card),
        findings=findings,
        judged=judged,
    )


def _from_outside(process: Process) -> Overview | None:
    """What the kernel tells of a process without an agent; None where it is not of this machine."""
    from ...client.listing import summarize_stranger
    from ...reach.endpoint import Stranger, resolve
    from ...rundir.folders import from_env

    place = resolve(process.label, from_env())
    seen = summarize_stranger(place.pid) if isinstance(place, Stranger) else None
    if seen is None:
        return None
    return Overview(
        endpoint=process.label,
        pid=seen.pid,
        host="",
        command=seen.command,
        rank=None,
        world_size=None,
        state=seen.state,
        problems=() if seen.obstacle is None else (seen.obstacle,),
        memory=memory_of(process, [], is_alive=True, pid=seen.pid),
        has_torch=seen.has_torch,
    )


def _summary(process: Process) -> ProcessSummary | None:
    """How a process of this machine is doing; None of one behind an address, which answers."""
    from ...client.listing import summarize

    return None if process.folder is None else summarize(process.folder)


def _state(summary: ProcessSummary | None, pace: Pace | None) -> str:
    """The word for what it does."""
    word = "idle" if summary is None else summary.state
    if pace is None or word not in ("idle", "training"):
        return word
    limit_s = max(_STILL_S, _STILL_STEPS * (pace.step_s or 0.0))
    return STILL if pace.age_s > limit_s else "training"


def _problems(process: Process, card: Card, summary: ProcessSummary | None) -> tuple[str, ...]:
    """What its agent could not do, and how it ended; what is shown elsewhere is left out."""
    if summary is None:
        return card.problems
    if summary.state != "dead" or process.folder is None:
        loss = "the loss has been "
        return tuple(one for one in summary.problems if not one.startswith(loss))
    from ...postmortem.endings import LAST_MEMORY as LAST_ROWS, ending_of

    try:
        rows = process.query(LAST_ROWS).to_pylist()
    except ProbingError:
        rows = []
    ending = ending_of(process.folder, rows)
    return () if ending is None else (*ending.certain, *ending.likely)


def _pace(rows: Sequence[Row]) -> Pace | None:
    """Step, speed, losses and phases.

    Args:
        rows: Of python.steps, the newest first.
    """
    if not rows:
        return None
    ended = [row for row in rows if row["duration"] is not None]
    counted = ended[:_WINDOW]
    total = math.fsum(row["duration"] for row in counted)
    known = [row["loss"] for row in reversed(ended)]
    return Pace(
        step=rows[0]["step"],
        age_s=rows[0]["age_s"],
        counted=len(counted),
        step_s=_median([row["duration"] for row in counted]),
        tokens_per_s=_median([row["tokens_per_s"] for row in counted]),
        samples_per_s=_rate(counted, total),
        losses=tuple(known) if any(loss is not None for loss in known) else (),
        first_step=ended[-1]["step"] if ended else None,
        phases=_phases(counted, total),
        device_s=_median([row["device_s"] for row in counted]),
    )


def _phases(counted: Sequence[Row], total: float) -> dict[str, float]:
    """Seconds of a step by phase, in their order; what none of them has is `other`."""
    if not counted:
        return {}
    sums = {phase: math.fsum(row[f"{phase}_s"] or 0.0 for row in counted) for phase in _PHASES}
    sums["other"] = max(0.0, total - math.fsum(s for name, s in sums.items() if name != "other"))
    return {name: seconds / len(counted) for name, seconds in sums.items() if seconds > 0}


def _rate(counted: Sequence[Row], total: float) -> float | None:
    known = [row["samples"] for row in counted if row["samples"] is not None]
    return sum(known) / total if len(known) == len(counted) and total > 0 else None


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None
