"""Figures of the processes of a machine, as Prometheus scrapes them.

Rules of this file: the format alone; what is told is in `figures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import MissingLibrary
from .figures import FIGURES, PHASE, UP, Figure, Figures, Found, measured

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ...messages.about.job import NodeMember

_LABELS = ("job", "rank", "pid")


class Metrics:
    """The figures of all processes of a machine.

    Raises:
        MissingLibrary: prometheus-client is not installed.
    """

    def __init__(self, figures: Figures) -> None:
        try:
            from prometheus_client.openmetrics.exposition import generate_latest
        except ImportError:
            raise MissingLibrary("prometheus-client") from None
        self._generate: Callable[[Any], bytes] = generate_latest
        self._figures = figures

    def text(self) -> bytes:
        """All of them now, in the OpenMetrics format."""
        return self._generate(self)

    def collect(self) -> Iterator[Metric]:
        """Each figure, with a sample per process; asked by the library."""
        from prometheus_client.core import GaugeMetricFamily

        def family(figure: Figure, *labels: str) -> GaugeMetricFamily:
            name = f"probing_{figure.name}"
            return GaugeMetricFamily(name, figure.doc, labels=(*_LABELS, *labels), unit=figure.unit)

        found = _one_of_each(self._figures.now())
        up = family(UP)
        for one in found:
            up.add_metric(_labels(one.member), float(one.member.is_alive))
        yield up
        for figure in FIGURES:
            of_all = family(figure)
            for member, value in measured(found, figure):
                of_all.add_metric(_labels(member), value)
            yield of_all
        phases = family(PHASE, "phase")
        for one in found:
            for phase, seconds in one.phases.items():
                phases.add_metric((*_labels(one.member), phase), seconds)
        yield phases


def _one_of_each(found: Iterable[Found]) -> list[Found]:
    """Of processes with the same labels the one that runs, else the newest.

    Trainings of one container after the other, whose records outlive it, may all be process 7.
    """
    chosen: dict[tuple[str, str, str], Found] = {}
    for one in sorted(found, key=lambda one: (one.member.is_alive, one.member.started_ns)):
        chosen[_labels(one.member)] = one
    return [*chosen.values()]


def _labels(member: NodeMember) -> tuple[str, str, str]:
    """What tells a process from others."""
    rank = "" if member.rank is None else str(member.rank)
    return member.job or "", rank, str(member.pid)
