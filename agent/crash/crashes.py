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
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from ...messages.codec import with_checksum
from ...rundir.folders import write_private
from ...safety.this_thread import thread_name
from ..recording.safe_points import AGENT_THREAD_PREFIX
from ..state import Agent
from . import own_frames
from .exception_record import Record, describe, other_threads
from .exits import Exits, Terminations
from .fatal_signals import FatalSignals

_THREADS_EVERY_S = 10.0
"""A thread that fails again and again is written down no more often; the first of a row counts."""
_RESERVE_BYTES = 1 << 20
_FIRST = 1 << 20
"""The priority of a finalizer that is called before all others."""


class CrashRecorder:
    """Writes down fatal signals, unhandled exceptions, SIGTERM and exits.

    Args:
        agent: Knows the run folder and the step in progress, and keeps what could not be done.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._folder = agent.folder
        self._signals = FatalSignals(agent.folder.fatal_signal)
        self._child_end = _ChildEnd(self._raised_in_child)
        self._exits = Exits(agent)
        self._terminations = Terminations(agent.folder.terminated)
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
        self._child_end.start()
        self._exits.start()
        self._terminations.start()
        self._agent.chores.append(self._terminations.look)
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
        self._child_end.stop()
        self._exits.stop()
        self._terminations.stop()
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous_hook
        if threading.excepthook is self._thread_hook:
            threading.excepthook = self._previous_thread_hook
        self._signals.stop()

    def tell_exit(self) -> None:
        """The process ends in an orderly way: leave word of who had it exit, and how."""
        self._exits.end()

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
        if self._exits.is_covered():
            found.append(
                "a function under the program's own sys.exit, which does what Python's does"
            )
        if self._signals.must_stay():
            found.append("faulthandler under the program's own signal handlers, writing nowhere")
        return found

    def _raised(
        self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None
    ) -> None:
        """Stand in for ``sys.excepthook``."""
        # At an interactive prompt an exception ends nothing.
        if self._is_on and value is not None and not hasattr(sys, "ps1"):
            is_end = getattr(sys, "last_value", None) is value  # as Python sets it, then
            try:
                self._is_interrupted = is_end and kind is KeyboardInterrupt and _has_agent_threads()
                thread = threading.current_thread()
                self._agent.ended_by(value)
                _leave_out_ours(value)
                self._write(self._folder.exception, "exception", value, traceback, thread)
            except BaseException:  # another Ctrl-C: the process ends already, by the first
                if not is_end:
                    raise
        self._previous_hook(kind, value, traceback)

    def _raised_in_child(self, value: BaseException) -> None:
        """An exception ends what `multiprocessing` runs in this process; never raises."""
        with contextlib.suppress(Exception):  # another Ctrl-C is the program's
            self._agent.ended_by(value)
            _leave_out_ours(value)
            thread = threading.current_thread()
            self._write(self._folder.exception, "exception", value, value.__traceback__, thread)

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


class _ChildEnd:
    """Looks at the exception that ends a process of `multiprocessing`, which no hook is told of.

    What the package runs in a process it has made catches all that is raised: it prints it, or
    hands it to the parent as `torch.multiprocessing.spawn` does, and ends with an exit code. Up to
    Python 3.12 it calls finalizers as the exception passes: one of ours looks at it. From 3.13 on
    they are called when it is gone: there we stand around what a process that is being spawned is
    about to run; of what runs already nothing is told. Whose process it is, has the package loaded:
    nothing is imported.

    Args:
        tell: Is given the exception, in the thread that ends.
    """

    def __init__(self, tell: Callable[[BaseException], None]) -> None:
        self._tell = tell
        self._pid = 0
        self._finalizer: Any = None
        self._put_back: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Look from now on; does nothing where the package is not loaded."""
        util: Any = sys.modules.get("multiprocessing.util")
        process: Any = sys.modules.get("multiprocessing.process")
        if util is None or process is None:
            return
        self._pid = os.getpid()
        if sys.version_info < (3, 13):
            # A process that was spawned forgets all finalizers as its code begins, and then calls:
            util.register_after_fork(self, _ChildEnd._expect)
            self._expect()
        elif hasattr(process.current_process(), "_inheriting"):
            self._stand_in(process.BaseProcess)

    def stop(self) -> None:
        """Look no more."""
        self._pid = 0
        self._put_back()
        if self._finalizer is not None:
            self._finalizer.cancel()
            self._finalizer = None

    def _expect(self) -> None:
        """Be called as the code ends; not in a process that this one has forked."""
        if self._pid == os.getpid():
            util: Any = sys.modules["multiprocessing.util"]
            self._finalizer = util.Finalize(None, self._passes, exitpriority=_FIRST)

    def _passes(self) -> None:
        """The code has ended, or the process does."""
        self._ended_by(sys.exc_info()[1])

    def _stand_in(self, kind: Any) -> None:
        """Be there as the code of the process begins."""
        original = kind._bootstrap  # noqa: SLF001 - nothing else is called before that code

        def bootstrap(child: Any, *args: Any, **kwargs: Any) -> Any:
            self._put_back()
            child.run = self._around(child.run)
            return original(child, *args, **kwargs)

        def put_back() -> None:
            if vars(kind)["_bootstrap"] is bootstrap:
                kind._bootstrap = original  # noqa: SLF001

        self._put_back = put_back
        kind._bootstrap = bootstrap  # noqa: SLF001

    def _around(self, run: Callable[[], None]) -> Callable[[], None]:
        """What runs in place of the code of the process."""

        def stand_in() -> None:
            try:
                run()
            except BaseException as error:
                if error.__traceback__ is not None:  # without this frame
                    error.__traceback__ = error.__traceback__.tb_next
                self._ended_by(error)
                raise

        return stand_in

    def _ended_by(self, error: BaseException | None) -> None:
        """The code ends by what is raised, if anything is."""
        if isinstance(error, SystemExit):
            # Whoever exits while an exception is handled does so for it; with 0, all is well.
            error = error.__context__ if error.code else None
        if error is not None and self._pid == os.getpid():
            self._tell(error)


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
