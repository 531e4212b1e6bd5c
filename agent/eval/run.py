"""Runs code once, with its output caught and its time limited.

Rules of this file: runs in a thread of the agent's own, while the training stands still or is
proven to be stuck. Whatever the code raises is its result.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from ...messages.common import EvalResult
from ...safety.this_thread import thread_name
from ...settings import Settings
from ..agent_threads import start_thread
from ..recording.safe_points import AGENT_THREAD_PREFIX
from ..recording.stillness import Training
from ..recording.training_thread import number_of
from ..sources.collectives.alone import AloneCode
from ..sources.numbers.tensor_texts import without_graph
from .code import (
    EvalInterrupted,
    Pieces,
    describe_failure,
    name_of,
    own_frames,
    place_of,
    shortened,
    threads_left,
)
from .frame_names import Place, find_thread, thread_of
from .namespace import Names
from .output import Capture, OutputSwitch
from .value_texts import represent

T = TypeVar("T")

_MOST_SESSIONS = 16
LAST_S = 600.0
"""How long a prompt's last value is kept for a next line."""
IDLE_S = 3600.0
"""How long a prompt that nobody has ended is kept for a next line."""
_AGAIN_S = 1.0
"""How long code that has been interrupted may take to end before it is interrupted again."""
_TIMER = "timer"
TIMER_THREAD = f"{AGENT_THREAD_PREFIX}{_TIMER}"


class Session:
    """What the lines of one prompt have in common.

    A function that outlives its prompt, such as a hook, still has the names: it refers to them.

    Attributes:
        last: The last value, by the name ``_``.
        names: What they have assigned.
        covers: What they have assigned that the script has by the same names.
        used_s: When it was used last.
    """

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        self.covers: dict[str, Any] = {}
        self.used_s = time.monotonic()


class Shared:
    """What all evals of an agent have in common.

    Attributes:
        sessions: The prompts, the one that was used last at the end.
        names: What code outside of prompts has assigned.
        alone: Keeps it out of collectives.
    """

    def __init__(self, settings: Settings) -> None:
        self.output = OutputSwitch()
        self.settings = settings
        self.sessions: dict[str, Session] = {}
        self.names: dict[str, Any] = {}
        self.alone = AloneCode()

    def session(self, name: str | None) -> Session:
        """What code of a prompt begins with; of many prompts, the newest are kept."""
        found = self.sessions.pop(name, None) if name is not None else None
        found = found or Session()
        found.used_s = time.monotonic()
        if name is not None:
            self.sessions[name] = found
        for oldest in list(self.sessions)[:-_MOST_SESSIONS]:
            self.sessions.pop(oldest, None)
        return found

    def forget_unused(self, now_s: float) -> None:
        """Let go of what nobody has come back to, such as the values of a closed notebook."""
        for name, session in list(self.sessions.items()):
            if now_s >= session.used_s + LAST_S:
                session.last = {}
            if now_s >= session.used_s + IDLE_S:
                self.sessions.pop(name, None)


class Code(NamedTuple):
    """What is to be run, and whose names it sees."""

    text: str
    thread: str | None = None
    frame: int | None = None
    session: str | None = None
    assigns: bool = False


class Moment(NamedTuple):
    """When code runs.

    Attributes:
        where: As of an `EvalResult`.
        waited_s: How long that was waited for.
        limit_s: The time limit that was asked for.
        left_s: How much of it is left.
        is_together: Whether all ranks of the job run it at this step.
        held_id: The kernel number of the thread that is held for it; None where none is.
    """

    where: str
    waited_s: float
    limit_s: float
    left_s: float
    is_together: bool = False
    held_id: int | None = None


class Run:
    """One run of code.

    Attributes:
        is_vetoed: Whether an audit hook has refused it.
        is_over: Whether it is to begin no more.
    """

    def __init__(self, code: Code, training: Training, shared: Shared) -> None:
        self._code = code
        self._training = training
        self._shared = shared
        self._interruptible = threading.Lock()
        self._ident: int | None = None
        self._why = ""
        self._session = Session()
        self.is_over = False
        self.is_vetoed = False

    def interrupt(self, why: str) -> None:
        """Raise `EvalInterrupted` in the code, if it is running; else it does not begin."""
        with self._interruptible:
            self._why = self._why or why
            if self._ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._ident), ctypes.py_object(EvalInterrupted)
                )

    def place(self) -> str | None:
        """The line that it executes now."""
        return place_of(self._ident)

    def execute(self, moment: Moment) -> EvalResult:
        """Run the code.

        Raises:
            NoSuchThread, NoSuchFrame: What it is to see is not there.
            NoThread: Its time cannot be limited.
        """
        self._training.use_device()
        names, thread = self._names(moment.held_id)
        names.open()
        step, before = self._training.step(), set(threading.enumerate())
        capture = self._shared.output.begin(self._shared.settings.eval_max_bytes)
        start = time.monotonic()
        try:
            with self._collectives(moment), self._limited(moment):
                value, kind, described = self._run(names, capture)
        finally:
            took = time.monotonic() - start
            self._shared.output.end()
            names.close()
        return EvalResult(
            output=capture.text,
            value=value,
            error=described,
            error_type=kind,
            omitted_bytes=capture.omitted_bytes,
            duration_s=took,
            waited_s=moment.waited_s,
            where=moment.where,
            step=step,
            thread=thread,
            left=threads_left(before),
            hidden=tuple(names.hidden),
        )

    def _collectives(self, moment: Moment) -> contextlib.AbstractContextManager[None]:
        """Keeps the code out of them, unless all ranks run it."""
        if moment.is_together:
            return contextlib.nullcontext()
        return self._shared.alone.refusing()

    def _names(self, held_id: int | None) -> tuple[Names, str]:
        """Where names come from, and the name of the thread that has them.

        Of several threads that train, the one that is held is meant.
        """
        code, training_thread = self._code, held_id or self._training.thread_id()
        thread = thread_of(training_thread) if code.thread is None else find_thread(code.thread)
        is_chosen = code.thread is not None or code.frame is not None
        session = self._session = self._shared.session(code.session)
        names = Names(
            Place(number_of(thread), code.frame, is_chosen),
            self._training.names(),
            last=session.last,
            kept=self._shared.names if code.session is None else session.names,
            behind=self._shared.names,
            covers=session.covers,
            assigns=code.assigns,
            is_held=held_id is not None and number_of(thread) == held_id,
        )
        return names, thread_name(thread)

    @contextlib.contextmanager
    def _limited(self, moment: Moment) -> Iterator[None]:
        """Interrupt the code when its time is up, and again as long as it does not end."""
        why = f"interrupted after its limit of {moment.limit_s:g} s"
        has_ended = threading.Event()

        def watch() -> None:
            left_s = max(0.05, moment.left_s)
            while not has_ended.wait(left_s):
                self.interrupt(why)
                left_s = _AGAIN_S

        start_thread(_TIMER, watch)
        try:
            yield
        finally:
            has_ended.set()

    def _run(self, names: Names, capture: Capture) -> tuple[str | None, str | None, str | None]:
        """Run the code; returns the text of a last expression, its error's kind and words.

        To put an exception into words runs code, too: whatever its ``__str__`` is.
        """
        try:
            return self._interruptibly(lambda: self._value(names, capture)), None, None
        except BaseException as error:  # noqa: BLE001 - the result, whatever it is
            failure = error
        try:
            described = self._interruptibly(functools.partial(self._describe, failure, names))
        except BaseException as error:  # noqa: BLE001 - as above
            described = f"{name_of(failure)}: it cannot be described ({name_of(error)})\n"
        kind = name_of(failure)
        del failure  # it refers to this frame: only the collector could free the two
        return None, kind, shortened(described, self._shared.settings.eval_max_bytes)

    def _value(self, names: Names, capture: Capture) -> str | None:
        """Run the statements; returns the text of a last expression."""
        self._ask_hooks()
        pieces = Pieces.of(self._code.text)
        if self.is_over:
            raise EvalInterrupted
        value = pieces.run(names)
        if value is None:
            return None
        if self._code.session is not None:
            self._session.last = {"_": without_graph(value)}
            self._session.used_s = time.monotonic()
        text, omitted = represent(value, self._shared.settings.eval_max_bytes)
        capture.omitted_bytes += omitted
        return text

    def _interruptibly(self, work: Callable[[], T]) -> T:
        """Do what may be interrupted."""
        try:
            with self._interruptible:
                self._ident = threading.get_ident()
            return work()
        finally:
            self._disarm()

    def _ask_hooks(self) -> None:
        """Let the process's audit hooks see the code; one that raises vetoes it."""
        try:
            sys.audit("probing.eval", self._code.text)
        except EvalInterrupted:
            raise
        except BaseException:
            self.is_vetoed = True
            raise

    def _disarm(self) -> None:
        """After this, no interruption can come any more.

        One that was sent and has not arrived yet arrives in the loop. Taking it back instead
        would leave the interpreter, from then on, looking for it at every step of every thread.
        """
        try:
            with self._interruptible:
                self._ident = None
            for _ in range(100):
                pass
        except EvalInterrupted:
            self._ident = None

    def _describe(self, error: BaseException, names: Names) -> str:
        """The traceback as the user should see it: from his own code on."""
        if isinstance(error, EvalInterrupted):
            return f"{own_frames(error)}the code was {self._why or 'interrupted'}\n"
        return describe_failure(error, names)
