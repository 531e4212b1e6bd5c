"""Leaves word in the run folder when the process, or a thread of it, is about to die.

Rules of this file: nothing is swallowed and nothing is printed. The hooks that were there before
are called with the same arguments, whatever becomes of our record, and see no frames of ours; a
hook that the user puts over ours, or in its place, stays when we go. What happens before the crash
costs nothing: no thread, no timer, no hook that runs earlier.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from ...messages.codec import with_checksum
from ...rundir.folders import write_private
from ...safety.this_thread import thread_name
from ..recording.safe_points import AGENT_THREAD_PREFIX
from ..state import Agent
from . import own_frames
from .exception_record import Record, describe, other_threads
from .fatal_signals import FatalSignals

_THREADS_EVERY_S = 10.0
"""A thread that fails again and again is written down no more often; the first of a row counts."""
_RESERVE_BYTES = 1 << 20


class CrashRecorder:
    """Writes down fatal signals and unhandled exceptions.

    Args:
        agent: Knows the run folder and the step in progress, and keeps what could not be done.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._folder = agent.folder
        self._signals = FatalSignals(agent.folder.fatal_signal)
        # Address space for the record of a MemoryError; never written to, it takes no memory.
        self._reserve: bytes | None = None
        self._is_on = self._is_interrupted = False
        self._next_s = 0.0
        self._hook = self._previous_hook = sys.excepthook
        self._thread_hook = self._previous_thread_hook = threading.excepthook

    def start(self) -> None:
        """Put the hooks in place, over those that are there."""
        folder = self._folder
        for left in (folder.fatal_signal, folder.exception, folder.thread_exception):
            left.unlink(missing_ok=True)  # by an agent that this process had before
        self._reserve = bytes(_RESERVE_BYTES)
        self._previous_hook, self._previous_thread_hook = sys.excepthook, threading.excepthook
        sys.excepthook = self._hook = self._raised
        threading.excepthook = self._thread_hook = self._raised_in_thread
        self._is_on = True
        try:
            self._signals.start()
        except (OSError, RuntimeError) as error:
            self._agent.problems.append(f"a fatal signal will leave no stacks: {error}")
            self._agent.write_card()

    def stop(self) -> None:
        """Take the hooks away; one that somebody refers to lets everything through from now on."""
        if not self._is_on:
            return
        self._is_on = False
        self._reserve = None
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook
        if threading.excepthook is self._thread_hook:
            threading.excepthook = self._previous_thread_hook
        self._signals.stop()

    def keep_interrupt(self) -> None:
        """Have the process end by SIGINT where a KeyboardInterrupt ends it, as Python has it.

        Python forgets that as soon as any thread runs code that is text, and exits with 1: threads
        of ours do that, as they import a module with a dataclass. Such code that ends by a
        KeyboardInterrupt reminds it.
        """
        if self._is_interrupted:
            with contextlib.suppress(KeyboardInterrupt):
                exec("raise KeyboardInterrupt")  # noqa: S102 - see above

    def remains(self) -> list[str]:
        """What `stop` will have to leave in the process, a sentence each."""
        found = []
        if self._is_on and sys.excepthook is not self._hook:
            found.append("a hook under the program's own sys.excepthook, which does nothing")
        if self._is_on and threading.excepthook is not self._thread_hook:
            found.append("a hook under the program's own threading.excepthook, which does nothing")
        if self._signals.must_stay():
            found.append("faulthandler under the program's own signal handlers, writing nowhere")
        return found

    def _raised(
        self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None
    ) -> None:
        """Stand in for ``sys.excepthook``."""
        # At an interactive prompt an exception ends nothing.
        if self._is_on and value is not None and not hasattr(sys, "ps1"):
            thread = threading.current_thread()
            self._agent.ended_by(value)
            _leave_out_ours(value)
            self._write(self._folder.exception, "exception", value, traceback, thread)
            is_end = getattr(sys, "last_value", None) is value  # as Python sets it, then
            self._is_interrupted = is_end and kind is KeyboardInterrupt and _has_agent_threads()
        self._previous_hook(kind, value, traceback)

    def _raised_in_thread(self, args: threading.ExceptHookArgs) -> None:
        """Stand in for ``threading.excepthook``."""
        value, now = args.exc_value, time.monotonic()
        wanted = self._is_on and value is not None and not isinstance(value, SystemExit)
        if wanted and value is not None and now >= self._next_s:
            self._next_s = now + _THREADS_EVERY_S
            thread = args.thread or threading.current_thread()
            path = self._folder.thread_exception
            self._agent.ended_by(value)
            _leave_out_ours(value)
            self._write(path, "thread exception", value, args.exc_traceback, thread)
        self._previous_thread_hook(args)

    def _write(
        self,
        path: Path,
        kind: str,
        value: BaseException,
        traceback: TracebackType | None,
        thread: threading.Thread,
    ) -> None:
        """Write the record: of the exception first, then again with all the other threads."""
        try:
            if isinstance(value, MemoryError):
                self._reserve = None
            record = describe(kind, value, traceback, thread)
            _put(path, record)
            record["step"] = self._agent.training.step()
            record["threads"] += other_threads(record)
            _put(path, record)
        except Exception as error:  # noqa: BLE001 - never harm the host
            with contextlib.suppress(Exception):
                self._agent.problems.append(f"a crash was not written down: {type(error).__name__}")


def _has_agent_threads() -> bool:
    """Whether threads of ours run, which may just be importing something."""
    return any(thread_name(t).startswith(AGENT_THREAD_PREFIX) for t in threading.enumerate())


def _leave_out_ours(value: BaseException) -> None:
    """Have the program print what it would print without us."""
    with contextlib.suppress(Exception):  # never harm the host
        own_frames.leave_out(value)


def _put(path: Path, record: Record) -> None:
    """Put a record in place, whole or not at all."""
    new = path.with_name(f"{path.name}.{threading.get_ident()}")
    try:
        write_private(new, with_checksum(json.dumps(record).encode()))
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
