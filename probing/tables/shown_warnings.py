"""The table of warnings that the process has shown."""

from __future__ import annotations

from .records import Table, count, text

WARNINGS = Table(
    name="warnings",
    kind="live",
    doc="The warnings that Python has shown in the process, also before the agent came, each"
    " text of a line once, as Python remembers it: not those that a filter ignores or"
    " shows each time, nor those of a module that warned again after a filter was changed.",
    columns=(
        text("module", "The module that did what is warned of."),
        text("file", "Its source file; NULL where it has none."),
        count("lineno", "The line."),
        text("category", "The class of the warning."),
        text("message", "What it says, the first 2,000 characters."),
    ),
)
