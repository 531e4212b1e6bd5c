"""The footer of an answer of many: who answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..text import escape_controls

if TYPE_CHECKING:
    from ....cluster.job.outcomes import Coverage


def render_coverage(coverage: Coverage, *, moved: str = "") -> str:
    """One line.

    Args:
        moved: What the answer cost, such as ``1,204 rows, 38 kB moved``.
    """
    words = coverage.words()
    return escape_controls(f"{words}; {moved}" if moved else words)
