"""Whether the libraries are there that SQL and who asks need, without loading them.

Rules of this file: loads nothing. A training's environment may hold the agent alone.
"""

from __future__ import annotations

import importlib.util

from ..errors import MissingLibrary

_NEEDED = ("duckdb", "numpy", "pyarrow")


def require_libraries() -> None:
    """Make sure that a process can be asked from here.

    Raises:
        MissingLibrary: Only what a training needs is installed.
    """
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise MissingLibrary(name)
