"""Figures of the processes of a machine, as Prometheus scrapes them.

Rules of this file: all comes from the records, so that no process is asked and none is held up, in
whatever state it is. Names and units are those of the OpenMetrics conventions; a process has one
series per figure, and one more per phase, so that what a machine adds is bounded by its processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...client.recent_steps import Pace, Row, last_ended, pace_of, steps_in
from ...errors import MissingLibrary, NoSuchProcess, RingError
from ...ring.format import OPEN
from ...ring.peek import RingPeek
from ...rundir.folders import ProcessFolder

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ...messages.about.job import NodeMember
    from .roster import Roster

_STEPS = 20
"""Of how many ended steps the figures are."""
_LABELS = ("job", "rank", "pid")
_Figures = Mapping[str, "float | None"]
_GAUGES: Mapping[str, tuple[str, str]] = {
    "step": ("", "The last training step that has ended."),
    "step_seconds": ("seconds", "The median duration of the last 20 steps."),
    "step_age_seconds": ("seconds", "How long ago the newest step began."),
    "stalled_seconds": ("seconds", "For how long it has made no progress although it should."),
    "loss": ("", "The loss of the last step."),
    "gradient_norm": ("", "The norm of all gradients before clipping, of the last step."),
    "learning_rate": ("", "The learning rate of the last step."),
    "samples_per_second": ("", "Samples per second over the last 20 steps."),
    "tokens_per_second": ("", "Tokens per second, the median of the last 20 steps."),
    "memory_bytes": ("bytes", "An accelerator's allocated memory, else the resident set."),
    "recording_seconds": ("seconds", "What recording has cost the last 20 steps, on average."),
}
"""Figures of a process: unit and meaning."""


class Metrics:
    """The figures of all processes of a machine.

    Raises:
        MissingLibrary: prometheus-client is not installed.
    """

    def __init__(self, roster: Roster) -> None:
        try:
            from prometheus_client.openmetrics.exposition import generate_latest
        except ImportError:
            raise MissingLibrary("prometheus-client") from None
        self._generate: Callable[[Any], bytes] = generate_latest
        self._roster = roster
        self._known: dict[str, Sequence[Row]] = {}
        self._lock = threading.Lock()

    def text(self) -> bytes:
        """All of them now, in the OpenMetrics format."""
        with self._lock:
            return self._generate(self)

    def collect(self) -> Iterator[Metric]:
        """Each figure, with a sample per process; asked by the library."""
        from prometheus_client.core import GaugeMetricFamily

        members = self._roster.members(with_states=False).members
        alive = [member for member in members if member.is_alive]
        found = [(_labels(member), *self._look(member)) for member in alive]
        self._known = {member.key: self._known.get(member.key, ()) for member in alive}
        up = GaugeMetricFamily("probing_up", "Whether the process runs.", labels=_LABELS)
        for member in members:
            up.add_metric(_labels(member), float(member.is_alive))
        yield up
        for name, (unit, doc) in _GAUGES.items():
            family = GaugeMetricFamily(f"probing_{name}", doc, labels=_LABELS, unit=unit)
            for labels, figures, _ in found:
                value = figures.get(name)
                if value is not None:
                    family.add_metric(labels, value)
            yield family
        phases = GaugeMetricFamily(
            "probing_step_phase_seconds",
            "What the last 20 steps spent in a phase, on average.",
            labels=(*_LABELS, "phase"),
            unit="seconds",
        )
        for labels, _, pace in found:
            for phase, seconds in () if pace is None else pace.phases.items():
                phases.add_metric((*labels, phase), seconds)
        yield phases

    def _look(self, member: NodeMember) -> tuple[_Figures, Pace | None]:
        try:
            folder = self._roster.folder(member.key)
        except NoSuchProcess:
            return {}, None
        rows = steps_in(folder, _STEPS + 1, self._known.get(member.key, ()))
        self._known[member.key] = rows
        last, pace = last_ended(rows), pace_of(rows, window=_STEPS)
        if pace is None:
            return {"stalled_seconds": member.stalled_s}, None
        return {
            "step": last.get("step"),
            "step_seconds": pace.step_s,
            "step_age_seconds": pace.age_s,
            "stalled_seconds": member.stalled_s,
            "loss": last.get("loss"),
            "gradient_norm": last.get("grad_norm"),
            "learning_rate": last.get("lr"),
            "samples_per_second": pace.samples_per_s,
            "tokens_per_second": pace.tokens_per_s,
            "memory_bytes": last.get("allocated_bytes"),
            "recording_seconds": _cost_s(folder),
        }, pace


def _labels(member: NodeMember) -> tuple[str, str, str]:
    rank = "" if member.rank is None else str(member.rank)
    return member.job or "", rank, str(member.pid)


def _cost_s(folder: ProcessFolder) -> float | None:
    """What recording has cost the last steps, each."""
    try:
        with RingPeek(folder.ring("overhead")) as ring:
            ended = (row for row in ring.newest(_STEPS, ("cost_s",)) if row.state != OPEN)
            costs = [cost for row in ended if (cost := row.values.get("cost_s")) is not None]
    except (FileNotFoundError, RingError):
        return None
    return sum(costs) / len(costs) if costs else None
