"""The table of stalls, written from outside."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, SEQ, START_NS, STEP
from .records import OWN_SCHEMA, Table, choice, seconds

STALL_STATES = ("running", "waiting", "stopped", "blocked")
"""What the process's main thread did when the stall was noticed."""

STALLS = Table(
    name="stalls",
    schema=OWN_SCHEMA,
    kind="recorded",
    doc="When the process made no progress: no step, collective or module call for ten"
    " seconds, or five median steps where longer (a minute before the third step). Written"
    " by a node server, where one runs; an open row is a stall that lasts, or in which"
    " the process ended.",
    columns=(
        STEP._replace(doc="The step that it was in, or had last finished."),
        DURATION._replace(doc="From the last progress to the next; NULL while there is none."),
        seconds("limit_s", "How long without progress was taken for a stall."),
        seconds("usual_s", "The median of its last steps; NULL before its third step."),
        choice(
            "state",
            STALL_STATES,
            "What its main thread did then: `running`, `waiting` (asleep in the kernel),"
            " `stopped` by a signal, or `blocked` (in a system call that no signal ends).",
        ),
        START_NS._replace(doc="When the last progress was seen."),
        DURATION_NS,
        SEQ,
    ),
)
