"""The tables about probing itself: what it records, and what that costs.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP
from .records import OWN_SCHEMA, Column, Table

SOURCE_STATES = ("on", "off", "failed", "absent")
"""Whether a source records."""

OVERHEAD = Table(
    name="overhead",
    schema=OWN_SCHEMA,
    kind="recorded",
    doc="What recording each training step has cost the training thread, collectives apart. What is"
    " done a few times per step and what hooks do is measured; module calls are counted, and their"
    " cost is estimated from a part of it that is measured now and then.",
    columns=(
        STEP,
        DURATION._replace(doc="How long the step took."),
        Column(
            name="cost_s",
            type="float64",
            unit="s",
            closing=True,
            doc="What recording has cost of that.",
        ),
        Column(
            name="share",
            type="float64",
            closing=True,
            doc="`cost_s` by `duration`; the setting `overhead` bounds it.",
        ),
        Column(
            name="rows",
            type="int64",
            closing=True,
            doc="Rows that the step has in python.torch_trace.",
        ),
        Column(
            name="backward_modules",
            type="int64",
            closing=True,
            doc="Modules whose backward pass is recorded at every step.",
        ),
        Column(
            name="thinned",
            type="int64",
            closing=True,
            doc="Modules that are left out of the record of this step: the smallest."
            " `probing ENDPOINT status` names them.",
        ),
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)

SOURCES = Table(
    name="sources",
    schema=OWN_SCHEMA,
    kind="live",
    doc="What records, each source of the agent with the table that it writes.",
    columns=(
        Column(name="source", type="text", doc="What it watches."),
        Column(
            name="state",
            type="enum",
            values=SOURCE_STATES,
            doc="`on`; `off`: paused by the setting `recording`; `failed`: switched off because it"
            " failed; `absent`: this torch has nothing of the kind.",
        ),
        Column(name="table", type="text", doc="The table that its rows are in."),
        Column(
            name="cost_s",
            type="float64",
            unit="s",
            doc="What it has cost in the last step that was looked at; NULL where that is not told"
            " apart.",
        ),
        Column(name="faults", type="int64", doc="How often it has failed."),
        Column(name="note", type="text", doc="What it leaves out, or how it failed last."),
    ),
)
