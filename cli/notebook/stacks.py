"""Stacks: each thread behind a line, the main thread open, frames of libraries behind one more."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...messages.common import Backtrace, Frame, ThreadStack
from ...stacks.thread_waits import deadlock_text, deadlocks, wait_text
from ..render.process.stacks import SOURCES, heading_of, is_of_library, render_frames
from ..render.text import plural
from .html import details, escaped, paragraphs, pre


def backtrace_html(backtrace: Backtrace) -> str:
    """All threads, the main thread first."""
    source = SOURCES.get(backtrace.source, f"taken by {backtrace.source}")
    head = [f"process {backtrace.pid}, {source}"]
    head += [backtrace.note] if backtrace.note else []
    head += [deadlock_text(circle) for circle in deadlocks(backtrace.threads)]
    threads = sorted(backtrace.threads, key=lambda thread: not thread.is_main)
    blocks = [_thread(thread, wait_text(threads, thread)) for thread in threads]
    tasks = [
        details(escaped(f"{task.kind} task {task.name}"), _frames(task.frames), is_open=True)
        for task in backtrace.tasks
    ]
    return paragraphs(head) + "".join([*blocks, *tasks])


def _thread(thread: ThreadStack, wait: str) -> str:
    waits = paragraphs([f"waits for {wait}"] if wait else [])
    stack = _frames(thread.frames) if thread.frames else paragraphs(["no Python frame"])
    return details(escaped(heading_of(thread)), waits + stack, is_open=thread.is_main)


def _frames(frames: Sequence[Frame]) -> str:
    """The frames, outermost first; the innermost one is never folded away."""
    ordered = tuple(reversed(frames))
    if not ordered:
        return ""
    drawn = ""
    for folds, group in itertools.groupby(ordered[:-1], is_of_library):
        run = tuple(group)
        text = pre("\n".join(render_frames(run)))
        drawn += details(f"{plural(len(run), 'frame')} of libraries", text) if folds else text
    return drawn + pre("\n".join(render_frames(ordered[-1:])))
