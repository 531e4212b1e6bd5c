"""The warnings that the process has shown, for ``python.warnings``.

Rules of this file: runs in the agent's thread; reads what Python keeps so as to show none twice;
imports nothing of the job's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from ...messages.common import LiveRows
from ...tables import WARNINGS

_LONGEST = 2000
_MOST = 1000

Row = tuple[str | None, str | None, int, str, str]


def warning_rows() -> LiveRows:
    """The rows of ``python.warnings`` now."""
    rows = [row for module in list(sys.modules.values()) for row in _shown_in(module)]
    return LiveRows.of(WARNINGS, rows[:_MOST])


def _shown_in(module: ModuleType) -> Iterator[Row]:
    """What was shown of one module's lines."""
    names = getattr(module, "__dict__", None)
    registry = names.get("__warningregistry__") if isinstance(names, dict) else None
    if not isinstance(registry, dict):
        return
    file = names.get("__file__") if names else None
    for key in list(registry):
        if isinstance(key, tuple) and len(key) == 3 and isinstance(key[2], int):
            message, category, lineno = key
            yield (
                str(names.get("__name__")) if names else None,
                file if isinstance(file, str) else None,
                lineno,
                getattr(category, "__name__", str(category)),
                str(message)[:_LONGEST],
            )
