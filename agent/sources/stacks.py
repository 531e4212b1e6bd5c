"""The stacks of all Python threads, taken by the agent's own thread.

Rules of this file: reads frames, never runs the threads' code and never touches their locals.
The agent's own threads are left out: they are not the job's.
"""

from __future__ import annotations

import os
import sys
import threading
import tokenize
from types import CodeType, FrameType

from ... import process
from ...stacks import is_ours
from ...wire import Backtrace, Frame, ThreadStack
from ..safe_points import AGENT_THREAD_PREFIX


def take_backtrace() -> Backtrace:
    """The stack of every Python thread now, main thread first."""
    # All frames first and at one go: what is read from files takes long enough for the threads
    # to move on, and a frame that has returned no longer knows who called it.
    lines = {ident: _lines_of(frame) for ident, frame in sys._current_frames().items()}
    facts = process.threads(os.getpid())
    main = threading.main_thread().ident
    source = _SourceLines()
    stacks = []
    for thread in _threads(set(lines)):
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
                frames=tuple(source.frame(*line) for line in lines.get(thread.ident or 0, ())),
            )
        )
    stacks.sort(key=lambda stack: not stack.is_main)
    return Backtrace(pid=os.getpid(), source="agent", threads=tuple(stacks))


def _lines_of(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """The code and line of every frame of a stack, innermost first."""
    found = []
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return found


def _threads(idents: set[int]) -> list[threading.Thread]:
    """The job's threads: those that threading knows, and those that only have frames."""
    known = [t for t in threading.enumerate() if not t.name.startswith(AGENT_THREAD_PREFIX)]
    own = {t.ident for t in threading.enumerate()} - {t.ident for t in known}
    for ident in idents - {t.ident for t in known} - own:
        stranger = threading.Thread(name=f"thread {ident:#x}")
        stranger._ident = ident  # type: ignore[attr-defined]
        known.append(stranger)
    return known


class _SourceLines:
    """Reads source files, each once, and forgets them with the answer."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def frame(self, code: CodeType, lineno: int) -> Frame:
        """A frame with the text of its line."""
        func = getattr(code, "co_qualname", code.co_name)  # 3.11 and newer know the class
        line = self._line(code.co_filename, lineno)
        return Frame(func=func, file=code.co_filename, lineno=lineno, line=line)

    def _line(self, file: str, lineno: int) -> str | None:
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
