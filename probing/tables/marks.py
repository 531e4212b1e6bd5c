"""The tables of what the script tells of itself."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD, TOLD_STEP
from .records import Table, closing, count, number, text

SPANS = Table(
    name="spans",
    kind="recorded",
    doc="One row per `probing.span(name)` of the script; open while it lasts.",
    columns=(
        STEP,
        text("name", "What the script calls it."),
        DURATION,
        count("depth", "How many spans of its thread or task are around it, at most 255.", bits=8),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)

METRICS = Table(
    name="metrics",
    kind="recorded",
    doc="One row per value that the script tells by `probing.metric(name=value)`.",
    columns=(
        TOLD_STEP,
        text("name", "What the script calls it."),
        *closing(
            number("value", "The number; NULL while it is on its way from a device."),
        ),
        THREAD,
        START_NS._replace(doc="When it was told, since the epoch."),
        SEQ,
    ),
)
