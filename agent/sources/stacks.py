"""The stacks of all Python threads, taken by the agent's own thread.

Rules of this file: reads frames, never runs the threads' code and never touches their locals.
The agent's own threads are left out: they are not the job's.
"""

from __future__ import annotations

import os
import sys
import threading
import tokenize
from types import FrameType

from ... import process
from ...wire import Backtrace, Frame, ThreadStack
from ..safe_points import AGENT_THREAD_PREFIX


def take_backtrace() -> Backtrace:
    """The stack of every Python thread now, main thread first."""
    frames = sys._current_frames()
    facts = process.threads(os.getpid())
    main = threading.main_thread().ident
    source = _SourceLines()
    stacks = []
    for thread in _threads(frames):
        frame = frames.get(thread.ident or 0)
        fact = facts.get(thread.native_id or 0)
        stacks.append(
            ThreadStack(
                thread_id=thread.native_id or 0,
                name=thread.name,
                is_main=thread.ident == main,
                daemon=thread.daemon,
                alive=thread.is_alive(),
                state=fact.state if fact else None,
                cpu_s=fact.cpu_s if fact else None,
                frames=_walk(frame, source),
            )
        )
    stacks.sort(key=lambda stack: not stack.is_main)
    return Backtrace(pid=os.getpid(), source="agent", threads=tuple(stacks))


def _threads(frames: dict[int, FrameType]) -> list[threading.Thread]:
    """The job's threads: those that threading knows, and those that only have frames."""
    known = [t for t in threading.enumerate() if not t.name.startswith(AGENT_THREAD_PREFIX)]
    own = {t.ident for t in threading.enumerate()} - {t.ident for t in known}
    for ident in frames.keys() - {t.ident for t in known} - own:
        stranger = threading.Thread(name=f"thread {ident:#x}")
        stranger._ident = ident  # type: ignore[attr-defined]
        known.append(stranger)
    return known


def _walk(frame: FrameType | None, source: _SourceLines) -> tuple[Frame, ...]:
    """A stack's frames, innermost first."""
    found = []
    while frame is not None:
        code = frame.f_code
        func = getattr(code, "co_qualname", code.co_name)  # 3.11 and newer know the class
        lineno = frame.f_lineno or 0
        line = source.line(code.co_filename, lineno)
        found.append(Frame(func=func, file=code.co_filename, lineno=lineno, line=line))
        frame = frame.f_back
    return tuple(found)


class _SourceLines:
    """Reads source files, each once, and forgets them with the answer."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, lineno: int) -> str | None:
        """The text of a line, or None when it cannot be read."""
        if file not in self._files:
            self._files[file] = self._read(file)
        lines = self._files[file]
        return lines[lineno - 1].strip() if 0 < lineno <= len(lines) else None

    @staticmethod
    def _read(file: str) -> list[str]:
        try:
            with tokenize.open(file) as source:
                return source.readlines()
        except (OSError, SyntaxError, UnicodeDecodeError):
            return []
