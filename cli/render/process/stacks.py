"""Stacks as a Python traceback shows them: outermost frame first, innermost last."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from ....messages.common import Backtrace, Frame, TaskStack, ThreadStack
from ....stacks.thread_waits import deadlock_text, deadlocks, wait_text
from ....units import age
from ..text import cut_middle, escape_controls, plural

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
    "open rows": "what was open on its record",
}
"""Where stacks come from, in words."""

_REPEATS_SHOWN = 3
_LONGEST_NAME = 100
_FOLD = "  … "
"""How the line begins that stands for a run of frames."""
_HOW_TO_UNFOLD = "-v unfolds libraries and idle threads"
_STANDARD = re.compile(r"/lib(?:64)?/python\d+\.\d+/")
_FOLDED = frozenset({"torch", "functorch"})
_STANDARD_WORDS = "the standard library"
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_IDLE = "idle: "
"""How the words of a thread begin that has nothing to do, and so waits for nothing."""


def render_backtrace(backtrace: Backtrace, *, is_whole: bool = False, color: bool = False) -> str:
    """All threads, each under a heading, the main thread last, where the eye is when it is read.

    Args:
        is_whole: With every frame of every thread; else runs of frames of libraries are folded,
            and of a thread that is idle no more is told than that.
    """
    source = SOURCES.get(backtrace.source, f"taken by {escape_controls(backtrace.source)}")
    threads = sorted(backtrace.threads, key=lambda thread: thread.is_main)
    resting = [] if is_whole else [thread for thread in threads if _is_idle(thread)]
    blocks = [_render_thread(t, wait_text(threads, t), is_whole=is_whole, color=color)
              for t in threads if t not in resting]  # fmt: skip
    tasks = [_render_task(task, is_whole=is_whole, color=color) for task in backtrace.tasks]
    is_folded = bool(resting) or any(_FOLD in block for block in (*blocks, *tasks))
    head = [f"process {backtrace.pid}, {source}" + (f" ({_HOW_TO_UNFOLD})" if is_folded else "")]
    if backtrace.note:
        head.append(escape_controls(backtrace.note))
    if not (backtrace.threads or (backtrace.note and backtrace.source == "open rows")):
        head.append("no Python thread was seen")
    head += [escape_controls(deadlock_text(circle)) for circle in deadlocks(threads)]
    idle = ["\n".join(heading_of(thread) for thread in resting)] if resting else []
    return "\n\n".join(["\n".join(head), *idle, *tasks, *blocks])


def _is_idle(thread: ThreadStack) -> bool:
    """Whether it has nothing to do; the main thread is told whole in any case."""
    return not thread.is_main and (thread.waiting or "").startswith(_IDLE)


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


def heading_of(thread: ThreadStack) -> str:
    """What is known of a thread beside its stack, on one line."""
    number = f" {thread.thread_id}" if thread.thread_id else ""
    facts = ", ".join(_facts(thread))
    about = f" ({facts})" if facts else ""
    doing = f": {escape_controls(thread.waiting)}" if thread.waiting else ""
    return f'Thread{number} "{_name(thread)}"{about}{doing}'


def _name(named: ThreadStack | TaskStack) -> str:
    """What a program calls a thread or a task, as long as a heading may be."""
    return cut_middle(escape_controls(named.name), _LONGEST_NAME)


def _render_thread(thread: ThreadStack, wait: str, *, is_whole: bool, color: bool) -> str:
    lines = [heading_of(thread)]
    if wait and not (thread.waiting or "").startswith(_IDLE):
        lines.append(f"  waits for {escape_controls(wait)}")
    frames = tuple(reversed(thread.frames))
    lines += render_frames(frames) if is_whole else fold_frames(frames, color=color)
    if not thread.frames:
        lines.append("  no Python frame")
    return "\n".join(lines)


def _render_task(task: TaskStack, *, is_whole: bool, color: bool) -> str:
    on = f" (on thread {task.thread_id})" if task.thread_id else ""
    word = {"asyncio": "Task"}.get(task.kind, escape_controls(task.kind).capitalize())
    doing = f": {escape_controls(task.waiting)}" if task.waiting else ""
    lines = [f'{word} "{_name(task)}"{on}{doing}']
    frames = tuple(reversed(task.frames))
    lines += render_frames(frames) if is_whole else fold_frames(frames, color=color)
    return "\n".join(lines)


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


def fold_frames(frames: Sequence[Frame], *, color: bool = False) -> list[str]:
    """The frames of the user's own code, and the innermost; a line for each run of others.

    A single frame between two is no run: a line would take its place.
    """
    lines: list[str] = []
    runs = itertools.groupby(enumerate(frames), lambda pair: is_of_library(pair[1]))
    for is_library, pairs in runs:
        run = [frame for _, frame in pairs]
        has_innermost = run[-1] is frames[-1]
        if not is_library:
            shown = render_frames(run)
            bold = f"{_BOLD}{{}}{_RESET}" if color else "{}"
            lines += [bold.format(line) if line.startswith("  File") else line for line in shown]
            continue
        folded, kept = (run[:-1], run[-1:]) if has_innermost else (run, [])
        if len(folded) > 1:
            text = f"{_FOLD}{plural(len(folded), 'frame')} in {_libraries(folded)}"
            lines.append(f"{_DIM}{text}{_RESET}" if color else text)
        else:
            kept = [*folded, *kept]
        lines += render_frames(kept)
    return lines


def is_of_library(frame: Frame) -> bool:
    """Whether a frame is of torch or the standard library; other packages may be the user's own."""
    return frame.kind == "python" and _library_of(frame) is not None


def _library_of(frame: Frame) -> str | None:
    """The library that a file is of; None for any other."""
    _, packages, inside = frame.file.rpartition("-packages/")
    if packages:
        name = inside.partition("/")[0]
        return name if name in _FOLDED else None
    is_standard = frame.file.startswith("<frozen ") or _STANDARD.search(frame.file)
    return _STANDARD_WORDS if is_standard else None


def _libraries(frames: Sequence[Frame]) -> str:
    """The packages of some frames, in their order: `torch and the standard library`."""
    names = [escape_controls(n) for n in dict.fromkeys(map(_library_of, frames)) if n is not None]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


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
