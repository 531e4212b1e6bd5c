"""What a node server tells of each process in figures: their names, and what the record says.

Rules of this file: all comes from the records, so that no process is asked and none is held up, in
whatever state it is. A figure is declared once, with its name in each of the two conventions. A
process has one series per figure, and one more per phase, so that what a machine adds is bounded by
its processes. Of one that has ended there is one more: how. What scripts tell, and what the doctor
finds, is there where it is asked for.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...client.recent_steps import Pace, Row, last_ended, last_known, pace_of, steps_in
from ...client.script_figures import ScriptFigures
from ...errors import NoSuchProcess, RingError
from ...messages.frozen import dataclass
from ...postmortem.endings import Reason, ending_of
from ...postmortem.kernel_log import KernelKill, logged_kills
from ...ring.format import OPEN
from ...ring.peek import RingPeek
from ...rundir.folders import ProcessFolder
from ...rundir.project import project_of
from ...rundir.standing import findings_of, standing_in

if TYPE_CHECKING:
    from ...messages.about.job import NodeMember
    from .roster import Roster

_STEPS = 20
"""Of how many ended steps the figures are."""
_TOLD_S = 120.0
"""So long after an end a launcher may still write down what it was."""
_TOLD_LATER: frozenset[Reason] = frozenset({"exception", "exit_code", "oom_killed", "terminated"})


class Figure(NamedTuple):
    """A figure of a process.

    Attributes:
        name: In Prometheus, after ``probing_``.
        unit: There.
        otel: Its name in OpenTelemetry, after ``probing.``.
        otel_unit: There, by UCUM.
    """

    name: str
    unit: str
    otel: str
    otel_unit: str
    doc: str


UP = Figure("up", "", "up", "", "Whether the process runs.")
ENDED = Figure("ended", "", "ended", "", "1 for a process that has ended, with how as its reason.")
FIGURES = (
    Figure("step", "", "step", "{step}", "The last training step that has ended."),
    Figure(
        "step_seconds", "seconds", "step.duration", "s",
        "The median duration of the last 20 steps.",
    ),
    Figure("step_age_seconds", "seconds", "step.age", "s", "How long ago the newest step began."),
    Figure(
        "stalled_seconds", "seconds", "stall.duration", "s",
        "For how long it has made no progress although it should.",
    ),
    Figure("loss", "", "loss", "", "The loss of the last step of which it is known."),
    Figure(
        "gradient_norm", "", "gradient_norm", "",
        "The norm of all gradients before clipping, of the last step of which it is known.",
    ),
    Figure("learning_rate", "", "learning_rate", "", "The learning rate of the last step."),
    Figure(
        "samples_per_second", "", "sample.rate", "{sample}/s",
        "Samples per second over the last 20 steps.",
    ),
    Figure(
        "tokens_per_second", "", "token.rate", "{token}/s",
        "Tokens per second, the median of the last 20 steps.",
    ),
    Figure(
        "memory_bytes", "bytes", "memory.usage", "By",
        "An accelerator's allocated memory, else the resident set.",
    ),
    Figure(
        "recording_seconds", "seconds", "recording.duration", "s",
        "What recording has cost the last 20 steps, on average.",
    ),
)  # fmt: skip
PHASE = Figure(
    "step_phase_seconds", "seconds", "step.phase.duration", "s",
    "What the last 20 steps spent in a phase, on average.",
)  # fmt: skip
TOLD = Figure("metric", "", "metric", "", "The last value that the script told by a name.")


FINDING = Figure(
    "finding", "", "finding", "", "1 for what the doctor finds wrong, by its rule, while it stands."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A process that is there, and its figures.

    Attributes:
        job: What its launcher calls the job, else the name of its script.
        values: By the names of `FIGURES`; what is not measured is None or left out.
        phases: Seconds of a step by phase.
        ended: How it has ended, if it has.
        told: What its script told, by name.
        findings: How sure each finding of the doctor is that stands, by its rule.
    """

    member: NodeMember
    job: str
    values: Mapping[str, float | None]
    phases: Mapping[str, float]
    ended: Reason | None = None
    told: Mapping[str, float] = field(default_factory=dict)
    findings: Mapping[str, str] = field(default_factory=dict)


class Figures:
    """The figures of all processes of a machine; from any thread.

    Args:
        told: The names of what scripts tell that are among them, as the setting has them.
        findings: The file in which a doctor leaves what it finds, if one watches.
    """

    def __init__(self, roster: Roster, told: str = "", findings: Path | None = None) -> None:
        self._roster = roster
        self._findings = findings
        self._told = ScriptFigures(told)
        self._known: dict[str, Sequence[Row]] = {}
        self._scripts: dict[str, str] = {}
        self._ends = _Ends()
        self._lock = threading.Lock()

    def now(self) -> list[Found]:
        """All processes, those that have ended among them, which have no figures but how."""
        with self._lock:
            members = self._roster.members(with_states=False).members
            kills = functools.cache(logged_kills)  # read once for all, if at all
            standing = standing_in(self._findings)
            found = [
                replace(self._look(member, kills), findings=findings_of(member, standing))
                for member in members
            ]
            alive = {member.key for member in members if member.is_alive}
            self._known = {key: rows for key, rows in self._known.items() if key in alive}
            self._told.keep(alive)
            here = {member.key for member in members}
            self._scripts = {key: name for key, name in self._scripts.items() if key in here}
            self._ends.keep(here)
            return found

    def _look(self, member: NodeMember, kills: Callable[[], Sequence[KernelKill]]) -> Found:
        """What the record of a process says."""
        try:
            folder = self._roster.folder(member.key)
        except NoSuchProcess:
            return Found(member=member, job=member.job or "", values={}, phases={})
        job = member.job or self._script(member, folder)
        if not member.is_alive:
            ended = self._ends.reason(member.key, folder, kills)
            return Found(member=member, job=job, values={}, phases={}, ended=ended)
        self._ends.saw_alive(member.key)
        told = self._told.now(member.key, folder)
        rows = steps_in(folder, _STEPS + 1, self._known.get(member.key, ()))
        self._known[member.key] = rows
        pace = pace_of(rows, window=_STEPS)
        if pace is None:
            values: Mapping[str, float | None] = {"stalled_seconds": member.stalled_s}
            return Found(member=member, job=job, values=values, phases={}, told=told)
        values = _values(member, folder, rows, pace)
        return Found(member=member, job=job, values=values, phases=pace.phases, told=told)

    def _script(self, member: NodeMember, folder: ProcessFolder) -> str:
        """What a process runs that is of no job."""
        if member.key not in self._scripts:
            card = folder.read_card()
            self._scripts[member.key] = "" if card is None else project_of(card)
        return self._scripts[member.key]


class _Ends:
    """How processes have ended: looked at once, and again while more may become known.

    What was told stays, but for what tells more: who looks later finds less, as an exit status that
    has been taken.
    """

    def __init__(self) -> None:
        self._ran: set[str] = set()
        self._known: dict[str, Reason] = {}
        self._until: dict[str, float] = {}

    def saw_alive(self, key: str) -> None:
        """A process runs, so that its end will be a new one."""
        self._ran.add(key)

    def reason(
        self, key: str, folder: ProcessFolder, kills: Callable[[], Sequence[KernelKill]]
    ) -> Reason:
        """How a process has ended."""
        now_s, known = time.monotonic(), self._known.get(key)
        until_s = self._until.setdefault(key, now_s + _TOLD_S if key in self._ran else now_s)
        if known is not None and (known in _TOLD_LATER or now_s > until_s):
            return known
        ending = ending_of(folder, (), kills)
        found: Reason = "unknown" if ending is None else ending.reason
        if known is None or found in _TOLD_LATER:
            self._known[key] = known = found
        return known

    def keep(self, keys: set[str]) -> None:
        """Forget all others."""
        self._ran &= keys
        self._known = {key: one for key, one in self._known.items() if key in keys}
        self._until = {key: one for key, one in self._until.items() if key in keys}


def _values(
    member: NodeMember, folder: ProcessFolder, rows: Sequence[Row], pace: Pace
) -> Mapping[str, float | None]:
    last = last_ended(rows)
    return {
        "step": last.get("step"),
        "step_seconds": pace.step_s,
        "step_age_seconds": pace.age_s,
        "stalled_seconds": member.stalled_s,
        "loss": last_known(rows, "loss"),
        "gradient_norm": last_known(rows, "grad_norm"),
        "learning_rate": last.get("lr"),
        "samples_per_second": pace.samples_per_s,
        "tokens_per_second": pace.tokens_per_s,
        "memory_bytes": last.get("allocated_bytes"),
        "recording_seconds": _cost_s(folder),
    }


def _cost_s(folder: ProcessFolder) -> float | None:
    """What recording has cost the last steps, each."""
    try:
        with RingPeek(folder.ring("overhead")) as ring:
            ended = (row for row in ring.newest(_STEPS, ("cost_s",)) if row.state != OPEN)
            costs = [cost for row in ended if (cost := row.values.get("cost_s")) is not None]
    except (OSError, RingError):
        return None
    return sum(costs) / len(costs) if costs else None


def measured(found: Sequence[Found], figure: Figure) -> Iterator[tuple[Found, float]]:
    """Who has a figure, and what it is."""
    for one in found:
        value = one.values.get(figure.name)
        if value is not None:
            yield one, value
