"""Records exceptions that are put into futures, and whether anybody ever asks for them.

Rules of this file: runs in whichever thread a task fails, around `Future.set_exception`, which does
as it always did; a task that does not fail costs nothing. A future that holds an exception gets
`result` and `exception` of its own, which give the same and note that they were asked; they hold
the exception as the future does, and nothing else. What futures note as they go is written later,
since they may go at any moment.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from ...own_files import AGENT, is_ours
from ...ring.format import DONE, NULL_NAME
from ...ring.writer import RingWriter
from .accelerator import Accelerator
from .shared.recording import Recording
from .stand_in import StandIn, StandInSource
from .torch_types import Optimizer

_ASKING = ("result", "exception")
_PLAIN = tuple([getattr(Future, name) for name in _ASKING])
_OPEN = frozenset({"PENDING", "RUNNING"})
_LONGEST = 200
_MOST_TEXTS = 256
"""So many different messages are kept; of others the class alone is."""
_MOST_KEPT = 1024
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", os.path.dirname(os.__file__), "<frozen")
_POOLS = f"{os.sep}concurrent{os.sep}futures{os.sep}"


def source(recording: Recording, ring: RingWriter, accelerator: Accelerator) -> TaskErrors:
    """What writes the table."""
    del accelerator
    return TaskErrors(recording, ring)


class _Fate:
    """What stands in for the methods of one future, together: it goes as the last of them does.

    That is later than the future, where one of them is called of a future that nobody holds.
    """

    __slots__ = ("__weakref__",)


class _Kept(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to such a fate that knows the row, and the future."""

    __slots__ = ("future", "word")
    future: weakref.ref[Any]
    word: int


class _Asked:
    """Stands in for `result` or `exception` of one future that has failed.

    Attributes:
        error: What it has failed with.
    """

    __slots__ = ("_fate", "_note", "_word", "error")

    def __init__(
        self, error: BaseException, fate: _Fate, word: int, note: Callable[[int | _Kept], None]
    ) -> None:
        self.error, self._fate, self._word, self._note = error, fate, word, note

    def _tell(self) -> None:
        """Note once that it was asked."""
        word, self._word = self._word, 0
        if word:
            self._note(word)


class _Result(_Asked):
    """Raises the exception, as `Future.result` does."""

    __slots__ = ()

    def __call__(self, timeout: float | None = None) -> object:
        del timeout
        self._tell()
        try:
            raise self.error
        finally:
            del self  # else the exception holds this frame, and this frame the exception


class _Exception(_Asked):
    """Gives the exception, as `Future.exception` does."""

    __slots__ = ()

    def __call__(self, timeout: float | None = None) -> BaseException:
        del timeout
        self._tell()
        return self.error


class TaskErrors(StandInSource):
    """Stands in for what puts exceptions into futures."""

    def __init__(self, recording: Recording, ring: RingWriter) -> None:
        self._recording, self._ring = recording, ring
        self._kept: dict[int, _Kept] = {}
        self._texts: set[str] = set()
        self._noted: deque[int | _Kept] = deque()  # in order: who is asked and goes, was asked
        methods, looks = [StandIn(Future, "set_exception", self._failed)], recording.events
        super().__init__("task_errors", methods, looks, after_step=self._after_step)

    def stop(self) -> None:
        """Record no more; futures are as they were."""
        super().stop()
        for kept in list(self._kept.values()):
            future = kept.future()
            if future is not None:
                _make_plain(future)
        self._kept.clear()

    def _failed(self, original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """Stands in for `Future.set_exception`."""
        future = args[0] if args else None
        error = args[1] if len(args) > 1 else kwargs.get("exception")
        self.guard.run(self._note, future, error)  # first: it calls back who asks at once
        try:
            return original(*args, **kwargs)
        except BaseException:  # it was cancelled meanwhile, or had one before
            self.guard.run(_make_plain, future, error)
            raise

    def _note(self, future: Any, error: object) -> None:
        """Open a row; who waits for the future already has asked."""
        self._write()
        kind = type(future)
        if not isinstance(error, BaseException) or len(self._kept) >= _MOST_KEPT:
            return
        if tuple([getattr(kind, name, None) for name in _ASKING]) != _PLAIN:
            return
        if future._state not in _OPEN or _is_of_agent():
            return
        word = self._open(error)
        if future._condition._waiters:
            self._ring.close_named(word, DONE, {"lost": 0, "duration_ns": 0})
            return
        fate, note = _Fate(), self._noted.append
        kept = self._kept[word] = _Kept(fate, note)
        kept.word, kept.future = word, weakref.ref(future)
        future.result = _Result(error, fate, word, note)
        future.exception = _Exception(error, fate, word, note)

    def _open(self, error: BaseException) -> int:
        """A row about an exception."""
        function, file, line = _places(error.__traceback__)
        intern = self._recording.names.intern
        return self._ring.open_named(
            {
                "start_ns": time.perf_counter_ns(),
                "step": self._recording.step,
                "function": intern(function) if function else NULL_NAME,
                "line": intern(line) if line else NULL_NAME,
                "file": intern(file) if file else NULL_NAME,
                "error": intern(self._text(error)),
                "thread_id": self._recording.threads.state.native_id,
            }
        )

    def _text(self, error: BaseException) -> str:
        """What it says, as long as there are not too many different ones."""
        text = f"{type(error).__qualname__}: {error}"[:_LONGEST]
        if len(self._texts) >= _MOST_TEXTS and text not in self._texts:
            return type(error).__qualname__
        self._texts.add(text)
        return text

    def _after_step(
        self, _optimizer: Optimizer, _args: tuple[object, ...], _kwargs: dict[str, object]
    ) -> None:
        """An optimizer has stepped: write what was noted since."""
        if self._noted:
            self.guard.run(self._write)

    def _write(self) -> None:
        """Close the rows of futures that were asked, or have gone."""
        while True:
            try:
                noted = self._noted.popleft()
            except IndexError:
                return
            is_lost = isinstance(noted, _Kept)
            self._close(noted.word if isinstance(noted, _Kept) else noted, is_lost=is_lost)

    def _close(self, word: int, *, is_lost: bool) -> None:
        kept = self._kept.pop(word, None)
        if kept is None or not self._ring.still_holds(word):
            return
        took = time.perf_counter_ns() - self._ring.started_ns(word)
        self._ring.close_named(word, DONE, {"lost": int(is_lost), "duration_ns": took})


def _make_plain(future: Any) -> None:
    """Take from a future what it was given."""
    for name in _ASKING:
        if isinstance(vars(future).get(name), _Asked):
            vars(future).pop(name, None)


def _is_of_agent() -> bool:
    """Whether the agent itself has called: its futures are its own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        if frame.f_code.co_filename.endswith("agent_threads.py"):
            return True
        frame = frame.f_back
    return False


def _places(traceback: TracebackType | None) -> tuple[str, str, str]:
    """The outermost function of a task, its file, and the innermost line outside of libraries."""
    function = file = line = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = code.co_filename
        if _POOLS not in name and not name.startswith(AGENT):
            if not function:
                function, file = getattr(code, "co_qualname", code.co_name), name
            if not any(part in name for part in _LIBRARIES):
                line = f"{os.path.basename(name)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return function, file, line
