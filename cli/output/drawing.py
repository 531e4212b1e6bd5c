"""Whether a terminal can be drawn on.

Rules of this file: whoever moves the cursor, or takes back what stands there, asks this first.
"""

from __future__ import annotations

import os
from typing import IO


def can_draw(stream: IO[str]) -> bool:
    """Whether it is a terminal that does what escape sequences say, as far as TERM tells."""
    return stream.isatty() and (os.environ.get("TERM") or "dumb") != "dumb"
