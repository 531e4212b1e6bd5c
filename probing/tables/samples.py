"""The table of stack samples."""

from __future__ import annotations

from .columns import SEQ, START_NS, STEP, THREAD
from .records import Table, closing, count, text

SAMPLES = Table(
    name="samples",
    kind="recorded",
    doc="Where each thread of the program was, `sampling_hz` times per second; none while C"
    " code holds the GIL.",
    columns=(
        STEP,
        *closing(
            text("thread", "The thread's name."),
            text("func", "The innermost Python function it was in."),
            text("file", "Its source file."),
            count("lineno", "The line that was being executed."),
            text(
                "stack",
                "All functions, outermost first, each with its file, separated by `;` as flame"
                " graphs need; the 64 innermost. NULL after 5,000 different stacks.",
            ),
        ),
        THREAD,
        START_NS._replace(doc="When it was taken, since the epoch."),
        SEQ,
    ),
)
