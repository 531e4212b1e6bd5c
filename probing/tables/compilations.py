"""The table of what torch.compile has compiled."""

from __future__ import annotations

from .records import Table, count, moment, seconds, text

COMPILATIONS = Table(
    name="compilations",
    kind="live",
    doc="What torch.compile has compiled, and why once more: the newest 64, as torch keeps them.",
    columns=(
        moment("start_ns", "When it began, since the epoch."),
        text("function", "The name of the Python function; NULL where torch does not say."),
        text("file", "Its source file."),
        count("lineno", "The function's first line."),
        count("frame", "torch's number of the function, or of the part of it behind a break of its"
              " graph.", bits=32),
        count("attempt", "How often that had been compiled before.", bits=32),
        text("stage", "`forward`, or `backward`: torch compiles the gradients of a graph when they"
             " are first asked for, and says neither how long that takes nor what is in them."),
        seconds("duration_s", "How long it took; NULL where torch does not say."),
        count("operations", "The operations of its graph.", bits=32),
        text("reason", "The guard that failed, so that it is compiled once more; NULL the first"
             " time."),
        text("failure", "Why it was not compiled: it runs as plain Python; NULL where it was."),
    ),
)  # fmt: skip
