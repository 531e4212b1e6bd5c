"""Figures of the processes of a machine, as Prometheus scrapes them.

Rules of this file: the format alone; what is told is in `figures`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import MissingLibrary
from .figures import ENDED, FIGURES, FINDING, PHASE, TOLD, UP, Figure, Figures, Found, measured

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LIBRARY = "probing-agent[metrics]"
"""What brings the library of the format."""
Labels = dict[str, str]


def is_installed() -> bool:
    """Whether that library is there, without loading it."""
    return importlib.util.find_spec("prometheus_client") is not None


class Metrics:
    """The figures of all processes of a machine.

    Raises:
        MissingLibrary: prometheus-client is not installed.
    """

    def __init__(self, figures: Figures) -> None:
        try:
            from prometheus_client.openmetrics.exposition import generate_latest
        except ImportError:
            raise MissingLibrary(LIBRARY) from None
        self._generate: Callable[[Any], bytes] = generate_latest
        self._figures = figures

    def text(self) -> bytes:
        """All of them now, in the OpenMetrics format."""
        return self._generate(self)

    def collect(self) -> Iterator[Metric]:
        """Each figure, with a sample per process; asked by the library."""
        from prometheus_client.core import GaugeMetricFamily

        def family(figure: Figure, samples: Iterable[tuple[Labels, float]]) -> GaugeMetricFamily:
            made = GaugeMetricFamily(f"probing_{figure.name}", figure.doc, unit=figure.unit)
            for labels, value in samples:
                made.add_sample(made.name, labels, value)
            return made

        found = _one_of_each(self._figures.now())
        yield family(UP, ((_labels(one), float(one.member.is_alive)) for one in found))
        ended = [one for one in found if one.ended is not None]
        yield family(ENDED, (({**_labels(one), "reason": f"{one.ended}"}, 1.0) for one in ended))
        for figure in FIGURES:
            of_all = measured(found, figure)
            yield family(figure, ((_labels(one), value) for one, value in of_all))
        phases = ((one, phase, s) for one in found for phase, s in one.phases.items())
        yield family(PHASE, (({**_labels(one), "phase": phase}, s) for one, phase, s in phases))
        told = ((one, name, value) for one in found for name, value in one.told.items())
        yield family(TOLD, (({**_labels(one), "name": name}, value) for one, name, value in told))
        yield family(FINDING, ((labels, 1.0) for one in found for labels in _findings(one)))


def _one_of_each(found: Iterable[Found]) -> list[Found]:
    """Of processes with the same labels the one that runs, else the newest.

    Trainings of one container after the other, whose records outlive it, may all be process 7.
    """
    chosen: dict[tuple[tuple[str, str], ...], Found] = {}
    for one in sorted(found, key=lambda one: (one.member.is_alive, one.member.started_ns)):
        chosen[tuple(_labels(one).items())] = one
    return [*chosen.values()]


def _findings(one: Found) -> Iterator[Labels]:
    """The labels of each finding."""
    for rule, certainty in one.findings.items():
        yield {**_labels(one), "rule": rule, "certainty": certainty}


def _labels(one: Found) -> Labels:
    """What tells a process from others; a label that would be empty is none."""
    rank = "" if one.member.rank is None else str(one.member.rank)
    labels = {"job": one.job, "rank": rank, "pid": str(one.member.pid)}
    return {name: value for name, value in labels.items() if value}
