"""Runs code that was sent by `eval`.

Rules of this file: each piece of code runs in a thread of its own. While training makes
progress it runs only when the training thread stands still at a safe point, because autograd
replaces gradients without the interpreter lock and a reader in another thread crashes the job.
When the training thread has made no progress for a second, the code runs at once, and the way
back into the training is closed until it is done. Whatever it raises is its result.
"""

from __future__ import annotations

import ast
import ctypes
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import CodeType
from typing import Any, Protocol

from .. import process
from ..errors import Busy, EvalTimedOut
from ..settings import Settings
from ..wire import EVAL_INTERRUPTED, EvalRequest, EvalResult
from . import namespace
from .output import Capture, OutputSwitch
from .safe_points import AGENT_THREAD_PREFIX, SafePoints, Visit
from .training import is_in_torch

STILL_S = 1.0
"""How long the training thread must be without progress before it counts as stuck."""
_POLL_S = 0.05
_END_S = 2.0
"""How long interrupted code is waited for when the agent goes."""
_FILE = "<eval>"


class Training(Protocol):
    """What an evaluation must know about the training in this process."""

    safe_points: SafePoints

    def is_moving(self) -> bool:
        """Whether a module call has ended in the last `STILL_S` seconds."""

    def thread_id(self) -> int:
        """The training thread's number in the kernel; 0 while there is none."""

    def step(self) -> int | None:
        """The step in progress; None while none is counted."""

    def names(self) -> Mapping[str, Any]:
        """Objects seen in recorded calls, such as ``model``."""


class EvalInterrupted(BaseException):
    """Raised inside code that has run out of time; clients know it by its name."""


assert EvalInterrupted.__name__ == EVAL_INTERRUPTED


class Evaluator:
    """Takes requests and hands back futures of their results."""

    def __init__(self, training: Callable[[], Training], settings: Callable[[], Settings]) -> None:
        self._training = training
        self._settings = settings
        self._output = OutputSwitch()
        self._running = 0
        self._in_hand: dict[threading.Thread, Evaluation] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Interrupt what runs, and wait a little for its end."""
        with self._lock:
            in_hand = dict(self._in_hand)
        for evaluation in in_hand.values():
            evaluation.end()
        end = time.monotonic() + _END_S
        for thread in in_hand:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))

    def submit(self, request: EvalRequest) -> Evaluation:
        """Start on a request.

        Raises:
            Busy: As many evals are in hand as may be.
        """
        settings = self._settings()
        with self._lock:
            if self._running >= settings.eval_max_running:
                raise Busy("evals", settings.eval_max_running)
            self._running += 1
        limit = min(request.timeout_s or settings.eval_timeout_s, 86_400.0)
        evaluation = Evaluation(request, limit, self._training(), self._output, settings)
        thread = threading.Thread(
            target=self._run, args=(evaluation,), name=f"{AGENT_THREAD_PREFIX}eval", daemon=True
        )
        with self._lock:
            self._in_hand[thread] = evaluation
        thread.start()
        return evaluation

    def _run(self, evaluation: Evaluation) -> None:
        """The body of an eval's thread."""
        try:
            evaluation.run()
        finally:
            with self._lock:
                self._running -= 1
                self._in_hand.pop(threading.current_thread(), None)


class Evaluation:
    """One piece of code on its way from request to result.

    Attributes:
        future: Gets the `EvalResult`, or the `EvalTimedOut` of code that never got to run.
        limit_s: Its time limit, waiting included.
    """

    def __init__(
        self,
        request: EvalRequest,
        limit_s: float,
        training: Training,
        output: OutputSwitch,
        settings: Settings,
    ) -> None:
        self.future: Future[EvalResult] = Future()
        self.future.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        self.limit_s = limit_s
        self._request = request
        self._training = training
        self._output = output
        self._max_bytes = settings.eval_max_bytes
        self._started = time.monotonic()
        self._interruptible = threading.Lock()
        self._thread: int | None = None
        self._is_over = False

    def run(self) -> None:
        """Wait for the right moment, run the code, and set the result."""
        safe_points = self._training.safe_points
        visit = safe_points.request(self.limit_s + 1.0)
        try:
            where = self._wait(visit)
            self.future.set_result(self._execute(where))
        except BaseException as error:  # noqa: BLE001 - the result, whatever it is
            self.future.set_exception(error)
        finally:
            safe_points.withdraw(visit)

    def interrupt(self) -> None:
        """Raise `EvalInterrupted` in the code, if it is running."""
        with self._interruptible:
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(EvalInterrupted)
                )

    def end(self) -> None:
        """The agent goes: interrupt the code, or do not run it at all."""
        self._is_over = True
        self.interrupt()

    def overdue(self) -> EvalTimedOut:
        """The error for code that runs on and does not react to being interrupted."""
        return EvalTimedOut(
            f"the code has run for {self.limit_s:g} s and cannot be interrupted where it is; it"
            " goes on in the background, and so does the training."
        )

    def _wait(self, visit: Visit) -> str:
        """Wait for a safe point, or for proof that the training thread is stuck.

        Returns:
            Where the code may run.

        Raises:
            EvalTimedOut: Neither came in time.
        """
        stillness = Stillness(self._training)
        while True:
            if visit.is_held():
                return "safe point"
            if self._request.now or stillness.is_proven():
                visit.close_way_back()
                return "agent thread"
            if self._is_over:
                raise EvalInterrupted
            if time.monotonic() - self._started > self.limit_s:
                raise EvalTimedOut(
                    f"the training came to no safe point within {self.limit_s:g} s and is not"
                    " provably stuck, so the code was not run. --now runs it without a safe point,"
                    " which can crash the training."
                )
            visit.wait_held(_POLL_S)

    def _execute(self, where: str) -> EvalResult:
        """Run the code with its output caught and its time limited."""
        step = self._training.step()
        waited = time.monotonic() - self._started
        capture = self._output.begin(self._max_bytes)
        start = time.monotonic()
        value, failure = None, None
        timer = threading.Timer(max(0.05, self.limit_s - waited), self.interrupt)
        timer.name = f"{AGENT_THREAD_PREFIX}timer"
        timer.daemon = True
        timer.start()
        try:
            value = self._run_code(capture)
        except BaseException as error:  # noqa: BLE001 - the result, whatever it is
            failure = error
        finally:
            timer.cancel()
            self._output.end()
        return EvalResult(
            output=capture.text,
            value=value,
            error=self._describe(failure) if failure else None,
            error_type=type(failure).__name__ if failure else None,
            omitted_bytes=capture.omitted_bytes,
            duration_s=time.monotonic() - start,
            waited_s=waited,
            where=where,
            step=step,
        )

    def _run_code(self, capture: Capture) -> str | None:
        """Run the statements; returns the representation of a last expression."""
        body, last = _compile(self._request.code)
        found = self._training.names()
        names = namespace.globals_for(body, self._training.thread_id(), found)
        if last is not None and not isinstance(names, namespace.LiveGlobals):
            names = namespace.globals_for(last, self._training.thread_id(), found)
        with self._interruptible:
            self._thread = threading.get_ident()
        try:
            if self._is_over:
                raise EvalInterrupted
            exec(body, names)  # noqa: S102 - what the user asked for
            value = eval(last, names) if last is not None else None  # noqa: S307
            return None if value is None else _represent(value, self._max_bytes, capture)
        finally:
            self._disarm()
            if isinstance(names, namespace.LiveGlobals):
                names.settle()

    def _disarm(self) -> None:
        """After this, no interruption can come any more.

        One that was sent and has not arrived yet arrives in the loop. Taking it back instead
        would leave the interpreter, from then on, looking for it at every step of every thread.
        """
        try:
            with self._interruptible:
                self._thread = None
            for _ in range(100):
                pass
        except EvalInterrupted:
            self._thread = None

    def _describe(self, error: BaseException) -> str:
        """The traceback as the user should see it: from his own code on."""
        if isinstance(error, EvalInterrupted):
            where = _own_frames(error)
            return f"{where}the code was interrupted after its limit of {self.limit_s:g} s\n"
        return _own_traceback(error)


class Stillness:
    """Watches the training thread until it is proven that it makes no progress."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._cpu = -1.0
        self._since = 0.0

    def is_proven(self) -> bool:
        """Whether nothing of the training can move while code runs beside it.

        Outside of torch it is enough that no module call has ended for a second. Inside a
        module, a backward pass or an optimizer, the whole process must also have used no
        processor time for as long, except in the agent's own threads.
        """
        if self._training.is_moving():
            self._cpu = -1.0
            return False
        if not _is_in_torch(self._training.thread_id()):
            return True
        cpu, now = _cpu_of_others(), time.monotonic()
        if self._cpu < 0 or cpu - self._cpu > 0.02:
            self._cpu, self._since = cpu, now
        return now - self._since >= STILL_S


def _is_in_torch(thread_id: int) -> bool:
    """Whether the training thread is inside a module, a backward pass or an optimizer."""
    if not thread_id:
        return False
    return is_in_torch(namespace.frame_of(thread_id))


def _cpu_of_others() -> float:
    """Processor time used by all threads of the process but the agent's, in seconds."""
    own = {t.native_id for t in threading.enumerate() if t.name.startswith(AGENT_THREAD_PREFIX)}
    facts = process.threads(os.getpid())
    return sum(fact.cpu_s for number, fact in facts.items() if number not in own)


def _compile(code: str) -> tuple[CodeType, CodeType | None]:
    """Compile statements, and apart from them a last expression, as a notebook does."""
    tree = ast.parse(code, _FILE, "exec")
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), _FILE, "eval")  # type: ignore[attr-defined]
    return compile(tree, _FILE, "exec"), last


def _represent(value: object, limit: int, capture: Capture) -> str:
    """The value as text, cut to the limit; a representation that fails says so."""
    try:
        text = repr(value)
    except EvalInterrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - the user's __repr__ may raise anything
        return f"<unprintable {type(value).__name__}: repr raised {type(error).__name__}>"
    if len(text) > limit:
        capture.omitted_bytes += len(text) - limit
        text = text[:limit]
    return text


def _own_traceback(error: BaseException) -> str:
    """A traceback without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _own_frames(error: BaseException) -> str:
    """Where the user's code was, as the frames of a traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    return "".join(traceback.format_list(frames))
