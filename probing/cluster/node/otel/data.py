"""The figures of all processes, in the data model of OpenTelemetry.

Rules of this file: pure; what is told is in `probing.cluster.node.figures`. Each process is a
resource of its own. Its job and rank are with every point as well, since many stores make labels of
the points' attributes alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)

from ....messages.about.job import NodeMember
from ..figures import ENDED, FIGURES, FINDING, PHASE, TOLD, UP, Figure, Found
from .resources import SCOPE, Resources

_Point = tuple[dict[str, "str | int"], float]


def metrics_data(found: Sequence[Found], resources: Resources) -> MetricsData:
    """All of them, of now."""
    now_ns = time.time_ns()
    resources.keep(one.member.key for one in found)
    return MetricsData(
        [
            ResourceMetrics(
                resource=resources.of(one.member),
                scope_metrics=[
                    ScopeMetrics(scope=SCOPE, metrics=list(_metrics(one, now_ns)), schema_url="")
                ],
                schema_url="",
            )
            for one in found
        ]
    )


def _metrics(one: Found, now_ns: int) -> Iterator[Metric]:
    """Those of a process."""
    who = _who(one.member)
    yield _gauge(UP, [(who, int(one.member.is_alive))], now_ns)
    if one.ended is not None:
        yield _gauge(ENDED, [({**who, "probing.end.reason": one.ended}, 1)], now_ns)
    for figure in FIGURES:
        value = one.values.get(figure.name)
        if value is not None:
            yield _gauge(figure, [(who, value)], now_ns)
    if one.phases:
        points = [({**who, "probing.phase": name}, s) for name, s in one.phases.items()]
        yield _gauge(PHASE, points, now_ns)
    if one.told:
        points = [({**who, "probing.metric.name": name}, v) for name, v in one.told.items()]
        yield _gauge(TOLD, points, now_ns)
    if one.findings:
        points = [
            ({**who, "probing.finding.rule": rule, "probing.finding.certainty": certainty}, 1)
            for rule, certainty in one.findings.items()
        ]
        yield _gauge(FINDING, points, now_ns)


def _gauge(figure: Figure, points: Sequence[_Point], now_ns: int) -> Metric:
    return Metric(
        name=f"probing.{figure.otel}",
        description=figure.doc,
        unit=figure.otel_unit,
        data=Gauge([NumberDataPoint(who, 0, now_ns, value) for who, value in points]),
    )


def _who(member: NodeMember) -> dict[str, str | int]:
    """What tells a process from others of its job."""
    who: dict[str, str | int] = {}
    if member.job is not None:
        who["probing.job"] = member.job
    if member.rank is not None:
        who["probing.rank"] = member.rank
    return who
