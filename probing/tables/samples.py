"""The table of stack samples.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import SEQ, START_NS, STEP, THREAD
from .records import Table, count, text

SAMPLES = Table(
    name="samples",
    kind="recorded",
    doc="Where each thread of the program was, so many times per second as the setting"
    " `sampling_hz` says; empty while that is 0. Taken by a thread of the agent, which has to wait"
    " for the interpreter's lock as any other: while C code holds it, there is no sample.",
    columns=(
        STEP,
        text("thread", "The thread's name.", closing=True),
        text("func", "The function it was in, the innermost one of Python.", closing=True),
        text("file", "Its source file.", closing=True),
        count("lineno", "The line that was being executed.", closing=True),
        text(
            "stack",
            "All functions from the outermost on, each with its file, separated by `;` as flame"
            " graphs want them; the 64 innermost. NULL once 5,000 different ones have been seen.",
            closing=True,
        ),
        THREAD,
        START_NS._replace(doc="When it was taken, since the epoch."),
        SEQ,
    ),
)
