"""The page of `probing web`: where its script and its style lie, and why there may be none.

Rules of this file: names of files only, nothing is asked and nothing heavy imported. What the page
is made of lies in ``src``, and is no part of an installation.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import PageMissing

_STATIC = Path(__file__).parent / "static"
_NOTE = _STATIC / "missing.txt"


def page_file(name: str) -> bytes:
    """A file of the page.

    Raises:
        PageMissing: The page was not built when probing was installed.
    """
    try:
        return (_STATIC / name).read_bytes()
    except FileNotFoundError:
        raise PageMissing(_why()) from None


def _why() -> str:
    """What the build says of it."""
    try:
        return _NOTE.read_text("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return "it was not built"
