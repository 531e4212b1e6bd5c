"""The line of a source file that adds to a variable.

Rules of this file: reads the file through `SourceLines`; tells the only line that fits, or none.
"""

from __future__ import annotations

import re

from ...stacks.source_lines import SourceLines

_MOST_LINES = 20_000
_ADDING = "append|appendleft|add|extend|insert|update|setdefault|put|push|register_module"


def line_that_adds(file: str, name: str, *, after: int = 0) -> int | None:
    """The number of the one line that adds something to what a name stands for.

    Args:
        after: Lines before this one are not looked at.
    """
    # history["loss"].append(x), self.losses += [x], cache[key] = x, losses: list = [*losses, x]
    word = rf"(?<![\w]){re.escape(name)}[\"']?\]?"
    pattern = re.compile(
        rf"{word}(\[[^\]]*\])*\s*(\.({_ADDING})\s*\(|\+=|\[[^\]]*\]\s*=[^=])|{word}\s*=.*{word}"
    )
    lines, found = SourceLines(), None
    for number in range(max(1, after), _MOST_LINES):
        text = lines.line(file, number)
        if text is None:
            break
        if not text.startswith("#") and pattern.search(text):
            if found is not None:
                return None
            found = number
    return found
