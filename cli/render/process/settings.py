"""The settings in force."""

from __future__ import annotations

from collections.abc import Sequence

from ....messages.common import SettingValue
from ..table import columns, draw_table
from ..text import escape_controls, plural, wrap_doc


def render_settings(
    settings: Sequence[SettingValue],
    unknown: Sequence[str] = (),
    *,
    width: int | None,
    color: bool,
    most: int = 0,
    is_whole: bool = True,
) -> str:
    """One line per setting; first what only looks like one.

    Args:
        most: How many settings; 0 for all.
        is_whole: With the meaning of each below it.
    """
    headings = columns("setting", "value", "from", "changes")
    shown = settings[: most or None]
    rows = [
        [
            setting.name,
            escape_controls(setting.value) or "(unset)",
            setting.source,
            "at run time" if setting.live else "at start",
        ]
        for setting in shown
    ]
    drawing = draw_table(headings, rows, width=width, color=color)
    lines = [f"problem: {escape_controls(sentence)}" for sentence in unknown]
    lines += drawing.heading
    for line, setting in zip(drawing.rows, shown, strict=True):
        meaning = f"{setting.env}: {setting.doc}"
        lines += [line, *(wrap_doc(meaning, width) if is_whole else ())]
    if len(shown) < len(settings):
        lines.append(f"… {plural(len(settings) - len(shown), 'more setting')}; -n 0 shows all")
    if not is_whole:
        lines.append("`config NAME` explains one, -v all")
    return "\n".join(lines)
