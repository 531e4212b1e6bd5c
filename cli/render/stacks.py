"""Stacks as a Python traceback shows them: outermost frame first, innermost last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .text import escape_controls, plural, render_age

if TYPE_CHECKING:
    from ...wire import Backtrace, Frame, ThreadStack

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible wait",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
    "I": "idle",
}
"""The kernel's letters for the state of a thread, in words."""

ReadLine = Callable[[str, int], str]
"""Gives the text of a line of a file, or nothing."""

_REPEATS_SHOWN = 3


def no_source(_file: str, _lineno: int) -> str:
    """A `ReadLine` that has no source at hand."""
    return ""


def render_backtrace(backtrace: Backtrace, *, read_line: ReadLine = no_source) -> str:
    """All threads, each under a heading.

    Args:
        read_line: Finds the source line of a frame that brings none.
    """
    taken = "the agent" if backtrace.source == "agent" else f"{backtrace.source} from outside"
    head = [f"process {backtrace.pid}, taken by {escape_controls(taken)}"]
    if backtrace.note:
        head.append(escape_controls(backtrace.note))
    if not backtrace.threads:
        head.append("no Python thread was seen")
    blocks = ["\n".join(head)]
    blocks += [_render_thread(thread, read_line) for thread in backtrace.threads]
    return "\n\n".join(blocks)


def _render_thread(thread: ThreadStack, read_line: ReadLine) -> str:
    number = f" {thread.thread_id}" if thread.thread_id else ""
    facts = ", ".join(_facts(thread))
    about = f" ({facts})" if facts else ""
    lines = [f'Thread{number} "{escape_controls(thread.name)}"{about}']
    lines += _render_frames(tuple(reversed(thread.frames)), read_line)
    if not thread.frames:
        lines.append("  no Python frame")
    return "\n".join(lines)


def _facts(thread: ThreadStack) -> list[str]:
    """What is known about a thread, in words."""
    facts = ["main"] if thread.is_main else []
    if thread.daemon:
        facts.append("daemon")
    if not thread.alive:
        facts.append("ended")
    elif thread.state:
        facts.append(STATES.get(thread.state, f"state {escape_controls(thread.state)}"))
    if thread.holds_gil:
        facts.append("holds the GIL")
    if thread.cpu_s is not None:
        facts.append(f"{render_age(thread.cpu_s)} of CPU")
    return facts


def _render_frames(frames: Sequence[Frame], read_line: ReadLine) -> list[str]:
    """The frames, a run of equal ones shortened as Python shortens it."""
    lines: list[str] = []
    repeats = 0
    for index, frame in enumerate(frames):
        repeats = repeats + 1 if index and frame == frames[index - 1] else 0
        if repeats < _REPEATS_SHOWN:
            lines += _render_frame(frame, read_line)
        is_last = index + 1 == len(frames) or frames[index + 1] != frame
        if is_last and repeats >= _REPEATS_SHOWN:
            more = plural(repeats - _REPEATS_SHOWN + 1, "more time")
            lines.append(f"  [Previous line repeated {more}]")
    return lines


def _render_frame(frame: Frame, read_line: ReadLine) -> list[str]:
    func, file = escape_controls(frame.func), escape_controls(frame.file)
    if frame.kind != "python":
        return [f'  {frame.kind.capitalize()} "{file}", in {func}']
    at = f", line {frame.lineno}" if frame.lineno else ""
    lines = [f'  File "{file}"{at}, in {func}']
    source = frame.line or (read_line(frame.file, frame.lineno) if frame.lineno else "")
    if source.strip():
        lines.append(f"    {escape_controls(source.strip())}")
    return lines
