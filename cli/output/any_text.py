"""Streams that take any text: what their encoding lacks is drawn plainly, or escaped.

Rules of this file: nothing that is to be shown may fail for want of a letter.
"""

from __future__ import annotations

import codecs
import os
import sys

_STAND_INS = "probing-stand-ins"
_PLAIN_CHARACTERS = {
    **dict.fromkeys("\u2500\u2550\u2013\u2014", "-"),
    **dict.fromkeys("\u2502\u251c", "|"),
    "\u2514": "`",
    "\u2026": "...",
    "\u2265": ">=",
    "\xd7": "x",
    "\xb2": "2",
    "\xb5": "u",
    "\u2192": "->",
    **dict(zip("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "_.-:=+*#", strict=True)),
}
"""What we draw with beyond ASCII, and what stands for it."""


def accept_any_text() -> None:
    """Let both streams show what their encoding cannot, escaped, rather than fail."""
    # Python has no stream at all for a descriptor that was closed before its start.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    codecs.register_error(_STAND_INS, _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_STAND_INS)


def _stand_in(error: UnicodeError) -> tuple[str | bytes, int]:
    """What is drawn where an encoding lacks one of our own characters; others' are escaped."""
    if isinstance(error, UnicodeEncodeError):
        plain = _PLAIN_CHARACTERS.get(error.object[error.start])
        if plain is not None:
            return plain, error.start + 1
    return codecs.backslashreplace_errors(error)
