"""Stacks as a Python traceback shows them: outermost frame first, innermost last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....stacks.thread_waits import deadlock_text, deadlocks, wait_text
from ....units import age
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....messages.common import Backtrace, Frame, TaskStack, ThreadStack

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

SOURCES = {
    "agent": "taken by the agent",
    "py-spy": "taken by py-spy from outside",
    "agent+py-spy": "taken by the agent and by py-spy from outside",
    "proc": "seen by the kernel alone",
    "crash": "as it died",
    "open rows": "the calls that had not returned when it died",
}
"""Where stacks come from, in words."""

_REPEATS_SHOWN = 3
_IDLE = "idle: "
"""How the words of a thread begin that has nothing to do, and so waits for nothing."""


def render_backtrace(backtrace: Backtrace) -> str:
    """All threads, each under a heading."""
    source = SOURCES.get(backtrace.source, f"taken by {escape_controls(backtrace.source)}")
    head = [f"process {backtrace.pid}, {source}"]
    if backtrace.note:
        head.append(escape_controls(backtrace.note))
    if not backtrace.threads:
        head.append("no Python thread was seen")
    threads = backtrace.threads
    head += [escape_controls(deadlock_text(circle)) for circle in deadlocks(threads)]
    blocks = ["\n".join(head)]
    blocks += [_render_thread(thread, wait_text(threads, thread)) for thread in threads]
    blocks += map(_render_task, backtrace.tasks)
    return "\n\n".join(blocks)


def render_folded(backtrace: Backtrace, *, root: Sequence[str] = ()) -> str:
    """One line per stack, as flame graph tools read them: ``thread;outermost;...;innermost 1``.

    Args:
        root: What to put before the thread.
    """
    stacks = Counter(
        ";".join(map(_fold, (*root, thread.name, *map(_place, reversed(thread.frames)))))
        for thread in backtrace.threads
    )
    return "\n".join(f"{stack} {count}" for stack, count in stacks.items())


def _place(frame: Frame) -> str:
    """A frame as one word of a folded stack."""
    file = frame.file.rpartition("/")[2]
    at = f"{file}:{frame.lineno}" if frame.lineno else file
    return f"{frame.func} ({at})" if at else frame.func


def _fold(word: str) -> str:
    """A word without what separates stacks and their frames."""
    return escape_controls(word).replace(";", ":")


def _render_thread(thread: ThreadStack, wait: str) -> str:
    number = f" {thread.thread_id}" if thread.thread_id else ""
    facts = ", ".join(_facts(thread))
    about = f" ({facts})" if facts else ""
    doing = f": {escape_controls(thread.waiting)}" if thread.waiting else ""
    lines = [f'Thread{number} "{escape_controls(thread.name)}"{about}{doing}']
    if wait and not (thread.waiting or "").startswith(_IDLE):
        lines.append(f"  waits for {escape_controls(wait)}")
    lines += render_frames(tuple(reversed(thread.frames)))
    if not thread.frames:
        lines.append("  no Python frame")
    return "\n".join(lines)


def _render_task(task: TaskStack) -> str:
    """What takes turns on a thread."""
    on = f" (on thread {task.thread_id})" if task.thread_id else ""
    word = {"asyncio": "Task"}.get(task.kind, escape_controls(task.kind).capitalize())
    doing = f": {escape_controls(task.waiting)}" if task.waiting else ""
    lines = [f'{word} "{escape_controls(task.name)}"{on}{doing}']
    return "\n".join((*lines, *render_frames(tuple(reversed(task.frames)))))


def _facts(thread: ThreadStack) -> list[str]:
    """What is known about a thread, in words."""
    facts = ["main"] if thread.is_main else []
    if thread.daemon:
        facts.append("daemon")
    if not thread.alive:  # the main thread has ended for `threading` when functions run at exit
        facts.append("at exit" if thread.is_main and thread.frames else "ended")
    elif thread.state:
        facts.append(STATES.get(thread.state, f"state {escape_controls(thread.state)}"))
    if thread.holds_gil:
        facts.append("holds the GIL")
    if thread.cpu_s is not None:
        facts.append(f"{age(thread.cpu_s)} of CPU")
    return facts


def render_frames(frames: Sequence[Frame]) -> list[str]:
    """The frames, a run of equal ones shortened as Python shortens it."""
    lines: list[str] = []
    repeats = 0
    for index, frame in enumerate(frames):
        repeats = repeats + 1 if index and frame == frames[index - 1] else 0
        if repeats < _REPEATS_SHOWN:
            lines += _render_frame(frame)
        is_last = index + 1 == len(frames) or frames[index + 1] != frame
        if is_last and repeats >= _REPEATS_SHOWN:
            more = plural(repeats - _REPEATS_SHOWN + 1, "more time")
            lines.append(f"  [Previous line repeated {more}]")
    return lines


def _render_frame(frame: Frame) -> list[str]:
    func, file = escape_controls(frame.func), escape_controls(frame.file)
    if frame.kind != "python":
        return [f'  {frame.kind.capitalize()} "{file}", in {func}']
    at = f", line {frame.lineno}" if frame.lineno else ""
    lines = [f'  File "{file}"{at}, in {func}']
    if frame.line and frame.line.strip():
        lines.append(f"    {escape_controls(frame.line.strip())}")
    lines += [
        f"      {escape_controls(local.name)} = {escape_controls(local.value)}"
        for local in frame.locals or ()
    ]
    return lines
