"""What came of an eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .text import render_age

if TYPE_CHECKING:
    from ...wire import EvalResult


def render_result(result: EvalResult) -> str:
    """What goes to stdout: the code's output, then the value of its last expression."""
    output = result.output
    if result.value is None:
        return output
    gap = "\n" if output and not output.endswith("\n") else ""
    return f"{output}{gap}{result.value}"


def eval_notes(result: EvalResult) -> list[str]:
    """What stderr should say beside the output."""
    notes = []
    if result.omitted_bytes:
        notes.append(f"… {result.omitted_bytes:,} more bytes of output were not kept")
    if not (result.output or result.value or result.error):
        notes.append(f"done in {_short(result.duration_s)}{_at(result)} (no output)")
    return notes


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else render_age(seconds)


def _at(result: EvalResult) -> str:
    return "" if result.step is None else f" at step {result.step}"
