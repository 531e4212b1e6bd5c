"""The tables about probing itself: what it records, and what that costs."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP
from .records import OWN_SCHEMA, Table, choice, closing, count, number, seconds, text

SOURCE_STATES = ("on", "off", "failed", "absent")
"""Whether a source records."""

OVERHEAD = Table(
    name="overhead",
    schema=OWN_SCHEMA,
    kind="recorded",
    doc="What recording each step cost the training thread, without collectives. Per-step"
    " work and hooks are measured; the cost of module calls is estimated from occasional"
    " measurements.",
    columns=(
        STEP,
        DURATION._replace(doc="How long the step took."),
        *closing(
            seconds("cost_s", "What recording has cost of that."),
            number("share", "`cost_s` by `duration`; see the setting `overhead`."),
            count("rows", "Rows that the step has in python.torch_trace."),
            count(
                "backward_modules",
                "Modules whose backward pass is on record: at every step, or where the C part"
                " records in this one, 0 where hooks rest.",
            ),
            count(
                "thinned",
                "The smallest modules, left out of this step's record; `probing ENDPOINT status`"
                " names them. 0 where the C part records.",
            ),
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
    doc="Each source of the agent, with the table that it writes.",
    columns=(
        text("source", "What it watches."),
        choice(
            "state",
            SOURCE_STATES,
            "`on`; `off`: paused by the setting `recording`; `failed`: switched off after"
            " failures; `absent`: not in this torch.",
        ),
        text("table", "The table that its rows are in."),
        seconds("cost_s", "Its cost in the last step looked at."),
        count("faults", "How often it has failed."),
        text("note", "What it leaves out, or how it failed last."),
    ),
)
