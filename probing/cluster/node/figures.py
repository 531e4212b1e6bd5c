"""What a node server tells of each process in figures: their names, and what the record says.

Rules of this file: all comes from the records, so that no process is asked and none is held up, in
whatever state it is. A figure is declared once, with its name in each of the two conventions. A
process has one series per figure, and one more per phase, so that what a machine adds is bounded by
its processes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...client.recent_steps import Pace, Row, last_ended, last_known, pace_of, steps_in
from ...errors import NoSuchProcess, RingError
from ...messages.frozen import dataclass
from ...ring.format import OPEN
from ...ring.peek import RingPeek
from ...rundir.folders import ProcessFolder

if TYPE_CHECKING:
    from ...messages.about.job import NodeMember
    from .roster import Roster

_STEPS = 20
"""Of how many ended steps the figures are."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A process that is there, and its figures.

    Attributes:
        values: By the names of `FIGURES`; what is not measured is None or left out.
        phases: Seconds of a step by phase.
    """

    member: NodeMember
    values: Mapping[str, float | None]
    phases: Mapping[str, float]


class Figures:
    """The figures of all processes of a machine; from any thread."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._known: dict[str, Sequence[Row]] = {}
        self._lock = threading.Lock()

    def now(self) -> list[Found]:
        """All processes, those that have ended among them, which have no figures."""
        with self._lock:
            members = self._roster.members(with_states=False).members
            found = [self._look(member) for member in members]
            alive = {member.key for member in members if member.is_alive}
            self._known = {key: rows for key, rows in self._known.items() if key in alive}
            return found

    def _look(self, member: NodeMember) -> Found:
        """What the record of a process says."""
        nothing = Found(member=member, values={}, phases={})
        if not member.is_alive:
            return nothing
        try:
            folder = self._roster.folder(member.key)
        except NoSuchProcess:
            return nothing
        rows = steps_in(folder, _STEPS + 1, self._known.get(member.key, ()))
        self._known[member.key] = rows
        pace = pace_of(rows, window=_STEPS)
        if pace is None:
            return Found(member=member, values={"stalled_seconds": member.stalled_s}, phases={})
        values = _values(member, folder, rows, pace)
        return Found(member=member, values=values, phases=pace.phases)


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


def measured(found: Sequence[Found], figure: Figure) -> Iterator[tuple[NodeMember, float]]:
    """Who has a figure, and what it is."""
    for one in found:
        value = one.values.get(figure.name)
        if value is not None:
            yield one.member, value
