"""What one screen shows of a process, put together from its record.

Rules of this file: nothing is asked that holds the training or that it takes part in: its record,
the kernel, and a sign that its agent is there. What was not measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...arguments import shown_command
from ...client.recent_steps import SELECT_STEPS, STILL, Pace, pace_of, state_with
from ...errors import NotProbed, ProbingError
from ...messages.frozen import dataclass
from ...postmortem.not_finite import SINCE, NotFinite, since_of
from ...sql.quoting import in_one
from ..questions.library import OWN_TIMES
from ..questions.records import put_in
from .cheap_findings import WITHIN_S, Found, find_cheaply
from .overview_memory import LAST_MEMORY, MemoryUse, memory_of
from .overview_ranks import RankStates, ranks_of

if TYPE_CHECKING:
    from ...client.base import Process
    from ...client.listing import ProcessSummary
    from ...diagnosis.doctor.findings import Finding
    from ...messages.card import Card

Row = Mapping[str, Any]

CURVE = 400
"""How many steps the curve of the loss is of."""
_MODULES, MOST_MODULES = 5, 20
"""How many modules a screen of 24 lines has room for, and how many are named at most."""
_ASKED = {
    "steps": f"{SELECT_STEPS}{CURVE}",
    "modules": put_in(f"{OWN_TIMES} LIMIT {MOST_MODULES}", {"steps": "20"}),
    "not_finite": SINCE,
    "memory": LAST_MEMORY,
}
_STANDING = frozenset({STILL, "not answering", "stopped"})
"""The states in which it does not get on: where it is then tells most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A process on one screen.

    Attributes:
        endpoint: How it was named.
        state: As in `probing list`.
        doing: What its training thread does, where it does not get on.
        problems: What is wrong with its agent, or how it ended.
        pace: None where no step is on record.
        modules: The slowest by their own code: `module`, `class`, `model`, how many `models`
            have one of that name, `calls`, `own_s` of a step and which `share` of it that is.
        ranks: The other processes of its job; None where it has none.
        findings: The gravest of what its record alone shows to be wrong.
        judged: How many rules could be judged by that; 0 where there is nothing to go by.
        late: How many more might have been, had there been the time.
        late_subjects: What these look at, the gravest first.
        has_stack: Whether a stack of it can be shown; False of one that has ended and left none.
    """

    endpoint: str
    pid: int
    host: str
    command: str
    rank: int | None
    world_size: int | None
    state: str
    doing: str | None = None
    problems: tuple[str, ...] = ()
    pace: Pace | None = None
    not_finite: NotFinite | None = None
    memory: MemoryUse | None = None
    modules: tuple[Row, ...] = ()
    ranks: RankStates | None = None
    findings: tuple[Finding, ...] = ()
    judged: int = 0
    late: int = 0
    late_subjects: tuple[str, ...] = ()
    has_torch: bool | None = None
    has_stack: bool = True


def overview_of(
    process: Process, *, most_modules: int = _MODULES, findings_s: float = WITHIN_S
) -> Overview:
    """Look at a process.

    Args:
        most_modules: How many modules to name.
        findings_s: How long to judge its record.

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
    told = process.query(in_one(_ASKED)).to_pylist()[0]
    pace = pace_of(told["steps"] or [])
    state = state_with(word_of(card) if summary is None else summary.state, pace)
    doing, is_idle = _doing(process) if state in _STANDING else (None, False)
    state = "idle" if is_idle else state
    has_steps = pace is not None
    found = find_cheaply(process, card, within_s=findings_s) if has_steps else Found()
    return Overview(
        endpoint=process.label,
        pid=card.pid,
        host=card.host,
        command=shown_command(card.command),
        rank=card.rank,
        world_size=card.world_size,
        state=state,
        doing=doing,
        problems=_problems(process, card, summary),
        pace=pace,
        not_finite=since_of(told["not_finite"] or []),
        memory=memory_of(process, told["memory"] or [], is_alive=state != "dead"),
        modules=tuple(told["modules"] or ())[:most_modules],
        ranks=ranks_of(process, card),
        findings=found.findings,
        judged=found.judged,
        late=found.late,
        late_subjects=found.late_subjects,
        has_stack=state != "dead" or _has_last_stack(process),
    )


class About(NamedTuple):
    """What a process is, and what there is to be told of it.

    Attributes:
        command: How it was started.
        doing: Where it is, where it does not get on.
        problems: What its agent could not do, and how it ended.
    """

    command: str
    state: str
    doing: str | None
    problems: tuple[str, ...]


def about(process: Process) -> About:
    """What `overview_of` tells of a process beside figures.

    Raises:
        ProbingError: It is not there, or nothing can be learnt of it.
    """
    card, summary = process.status(), _summary(process)
    state = "" if summary is None else summary.state
    return About(
        command=shown_command(card.command),
        state=state,
        doing=_doing(process)[0] if state in _STANDING else None,
        problems=_problems(process, card, summary),
    )


def _doing(process: Process) -> tuple[str | None, bool]:
    """Where it is that does not get on, if a stack can be had, and whether it waits for code."""
    from ...diagnosis.hang.seen.doings import doing_of, is_at_prompt

    try:
        doing = doing_of(process.backtrace())
    except ProbingError:
        return None, False
    if doing is None:
        return None, False
    at = f", at {doing.where}" if doing.where and not doing.is_deadlock else ""
    return doing.words + at, is_at_prompt(doing)


def _has_last_stack(process: Process) -> bool:
    """Whether anything tells where an ended process was."""
    from ...postmortem.last_known import has_last_stack  # it needs numpy, which the living do not

    return has_last_stack(process.folder)


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
        problems=(*seen.problems, *(() if seen.obstacle is None else (seen.obstacle,))),
        memory=memory_of(process, [], is_alive=True, pid=seen.pid),
        has_torch=seen.has_torch,
    )


def word_of(card: Card) -> str:
    """What a process does that answers, as far as it says so itself."""
    return "idle" if card.is_recording else "not recorded"


def _summary(process: Process) -> ProcessSummary | None:
    """How a process of this machine is doing; None of one behind an address, which answers."""
    from ...client.listing import summarize

    return None if process.folder is None else summarize(process.folder)


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
    return () if ending is None else ending.sentences
