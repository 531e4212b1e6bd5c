"""What a terminal sends for keys, as names of keys.

Rules of this file: pure functions of their arguments. A key that nobody needs is left out.
"""

from __future__ import annotations

import re

_NAMES = {
    "\x1b[A": "up", "\x1bOA": "up",
    "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[C": "right", "\x1bOC": "right",
    "\x1b[D": "left", "\x1bOD": "left",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b": "escape",
    "\r": "enter", "\n": "enter",
    "\x7f": "backspace", "\x08": "backspace",
    "\x0c": "redraw",
}  # fmt: skip
_KEY = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]|\x1bO.|\x1b|.", re.DOTALL)


def decode_keys(data: bytes) -> list[str]:
    """The keys in what a terminal has sent: a character each, or a name such as `page up`."""
    found = []
    for match in _KEY.finditer(data.decode("utf-8", "ignore")):
        key = _NAMES.get(match[0])
        if key is not None:
            found.append(key)
        elif len(match[0]) == 1 and match[0].isprintable():
            found.append(match[0])
    return found
