"""The settings in force."""

from __future__ import annotations

from collections.abc import Sequence

from ....messages.common import SettingValue
from ..table import Heading, draw_table
from ..text import escape_controls, wrap_doc


def render_settings(
    settings: Sequence[SettingValue],
    unknown: Sequence[str] = (),
    *,
    width: int | None,
    color: bool,
) -> str:
    """One line per setting, its meaning below it; first what only looks like one."""
    headings = [
        Heading(name="setting"),
        Heading(name="value"),
        Heading(name="from"),
        Heading(name="changes"),
    ]
    rows = [
        [
            setting.name,
            escape_controls(setting.value) or "(unset)",
            setting.source,
            "at run time" if setting.live else f"{setting.env} at start",
        ]
        for setting in settings
    ]
    drawing = draw_table(headings, rows, width=width, color=color)
    lines = [f"problem: {escape_controls(sentence)}" for sentence in unknown]
    lines += drawing.heading
    for line, setting in zip(drawing.rows, settings, strict=True):
        lines += [line, *wrap_doc(setting.doc, width)]
    return "\n".join(lines)
