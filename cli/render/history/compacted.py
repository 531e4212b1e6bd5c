"""Draws what became of a history that was compacted.

Rules of this file: records in, text out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import size
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....history.compaction.outcome import Compacted


def render_compacted(done: Compacted, folder: str) -> str:
    """A line for each thing that was done."""
    lines = []
    if done.removed_files:
        upto = "" if done.removed_upto is None else f": rows up to {done.removed_upto}"
        files = plural(done.removed_files, "file")
        lines.append(f"removed {files}, {size(done.removed_bytes)}{upto}")
    if done.rolled_rows:
        lines.append(
            f"{plural(done.rolled_rows, 'row')} of modules are rolled up:"
            f" {size(done.rolled_bytes)} are now {size(done.rolled_new_bytes)}"
        )
    if done.merged_files:
        lines.append(
            f"{plural(done.merged_files, 'file')} of {size(done.merged_bytes)} are now"
            f" {plural(done.new_files, 'file')} of {size(done.new_bytes)}, with the same"
            f" {plural(done.rows, 'row')}"
        )
    if not lines:
        lines.append(f"nothing to do in {escape_controls(folder)}")
    return "\n".join(lines)
