"""What came of an eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....messages.common import EvalResult


def render_result(result: EvalResult) -> str:
    """What goes to stdout: the code's output, then the value of its last expression."""
    output = result.output
    if result.value is None:
        return output
    gap = "\n" if output and not output.endswith("\n") else ""
    return f"{output}{gap}{result.value}"


def render_repeated(result: EvalResult) -> str:
    """One of many results: the step that it was at, then what came."""
    head = "step ?" if result.step is None else f"step {result.step}"
    text = render_result(result).rstrip("\n")
    return f"{head}:\n{text}" if "\n" in text else f"{head}: {text}".rstrip(": ")


def eval_notes(result: EvalResult) -> list[str]:
    """What stderr should say beside the output."""
    notes = []
    if result.omitted_bytes:
        notes.append(f"… {result.omitted_bytes:,} more bytes of output were not kept")
    if result.left:
        names = ", ".join(result.left)
        notes.append(f"left running in the process: the thread{_s(result.left)} {names}")
    notes += lost_notes([result])
    if not (result.output or result.value or result.error):
        notes.append(f"done in {duration(result.duration_s)}{_at(result)} (no output)")
    elif result.step is not None:
        held = "training held" if result.where == "safe point" else "beside the training"
        notes.append(f"at step {result.step}, {held} for {duration(result.duration_s)}")
    return notes


def lost_notes(results: Sequence[EvalResult]) -> list[str]:
    """What to say of what the code has set, and that is as before."""
    hidden = list(dict.fromkeys(name for result in results for name in result.hidden))
    notes = list(dict.fromkeys(note for result in results for note in result.notes))
    if hidden:
        verb, what = ("is", "it") if len(hidden) == 1 else ("are", "them")
        names = ", ".join(hidden)
        notes.append(f"{names} of the script {verb} as before: --assign changes {what} there")
    return notes


def _s(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"


def _at(result: EvalResult) -> str:
    return "" if result.step is None else f" at step {result.step}"
