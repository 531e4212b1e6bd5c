"""torch.profiler over some steps, begun and ended by the training thread.

Rules of this file: torch's profiler belongs to the thread that starts it, so all but `cancel`,
`save` and the constructor runs in the training thread, at the ends of steps. There is one profiler
in a process, and a second one that is started crashes it: nobody else's is disturbed, and ours
makes way when the program starts its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ....script.profile_mark import MARK, MARKS_PER_STEP
from ..accelerator import profiler_activity
from ..stand_in import StandIn
from .quiet_start import quiet_start

_LOG_LEVEL = "KINETO_LOG_LEVEL"
_FIRST = "torch._dynamo"
"""What a program imports with its first optimizer. Two threads that import this and the next, each
from its own end, meet half-made modules, and the program's fails: ours waits for the first."""
_LOOKED_UP = "torch._inductor.config"
"""What torch's profiler imports as it starts, a second and more, in the thread that starts it."""
_MAKE_WAY_S = 60.0
_BEGINNINGS = ("_prepare_profiler", "_enable_profiler")
"""The functions of torch that every profiler of it begins with."""
THEIRS = "the program runs torch.profiler itself"
DISPLACED = "the program started torch.profiler itself meanwhile"


class StepsProfile:
    """One profile: waits for the end of a step, runs for some steps, and is over.

    Args:
        steps: How many.
        step: Tells the number of the step in progress.
        clock_offset_ns: What makes the monotonic clock the time since the epoch.

    Attributes:
        state: ``idle`` until it is prepared, ``waiting``, ``running``, ``ending`` once all steps
            are profiled, ``cancelled``, or ``refused``; then `reason` says why.
        done: Steps profiled.
        moved_s: When a step ended last, by the monotonic clock.
        over: Set when the profiler is off and stays off.
    """

    def __init__(self, steps: int, step: Callable[[], int | None], clock_offset_ns: int) -> None:
        self.steps = steps
        self.state = "idle"
        self.reason = ""
        self.done = 0
        self.moved_s = time.monotonic()
        self.over = threading.Event()
        self._step = step
        self._offset_ns = clock_offset_ns
        self._torch: Any = sys.modules["torch"]
        self._first = 0
        self._asked_in: int | None = None
        self._marked_ns = 0
        self._thread = 0
        self._profiler: Any = None
        self._is_cancelled = False
        self._lock = threading.RLock()
        self._theirs = _OthersProfilers(self._make_way)

    def prepare(self) -> None:
        """Look for a profiler of the program's, and stay on the look-out; in the agent's thread."""
        with contextlib.suppress(Exception):  # which torch's profiler would fail with, too
            for name in (_FIRST, _LOOKED_UP) if _FIRST in sys.modules else ():
                importlib.import_module(name)
        self._theirs.start()
        self._asked_in, self.moved_s = self._step(), time.monotonic()
        if self._torch.autograd.profiler._is_profiler_enabled or _is_warming_up(self._torch):
            self._refuse(THEIRS)
        with self._lock:
            if self.state == "idle":
                self.state = "waiting"

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        with self._lock:
            if self.over.is_set():
                return True
            if self.state == "running" and threading.get_ident() != self._thread:
                return False
            if self._is_cancelled:
                self._end("cancelled")
                return True
            step = self._step()
            if step is not None:
                self._advance(step)
            return self.over.is_set()

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        with self._lock:
            self._refuse(f"torch.profiler failed in this process with {reason}")

    def cancel(self) -> None:
        """End it: at once if it has not begun, else as its thread comes by next."""
        with self._lock:
            self._is_cancelled = True
            if self.state in {"idle", "waiting"}:
                self._end("cancelled")

    def end_later(self) -> None:
        """The agent goes while a step hangs: have the end of that step turn the profiler off.

        The hook stays, since it cannot take itself off the list that torch is walking over; from
        then on it does nothing.
        """
        from ..steps.optimizers import _HookLists

        def after(*_: object) -> None:
            if not self.over.is_set() and threading.get_ident() == self._thread:
                self.step_ended()

        if _HookLists().wait_unused():
            sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)

    def save(self, path: Path) -> None:
        """Write the trace of a profile that has ended; runs in the agent's thread."""
        profiler, self._profiler = self._profiler, None
        profiler.export_chrome_trace(str(path))

    def _advance(self, step: int) -> None:
        """A step has ended, and another begins."""
        self.moved_s = time.monotonic()
        if self.state == "waiting":
            if step != self._asked_in:  # else no step has ended, and perhaps none ever does
                self._begin(step)
        elif threading.get_ident() == self._thread and step - self._first > self.done:
            self.done = step - self._first
            self._mark(step)
            if self.done >= self.steps:
                self._end("ending")

    def _begin(self, step: int) -> None:
        """Start the profiler, unless one is on."""
        autograd = self._torch.autograd
        if autograd.profiler._is_profiler_enabled or autograd._profiler_enabled():
            self._refuse(THEIRS)
            return
        self._profiler = self._make_profiler()
        with self._theirs.our_own(), _silence(), quiet_start():
            self._profiler.start()
        self._first, self._thread, self.state = step, threading.get_ident(), "running"
        self._mark(step)

    def _make_profiler(self) -> Any:
        return self._torch.profiler._KinetoProfile(activities=self._activities())

    def _activities(self) -> list[Any]:
        """The CPU, and an accelerator where the program uses one."""
        kinds, name = self._torch.profiler.ProfilerActivity, profiler_activity()
        return [kinds.CPU, *([] if name is None else [getattr(kinds, name)])]

    def _mark(self, step: int) -> None:
        """Leave marks in the trace, with the time by the ring's clock."""
        record_function = self._torch.autograd.profiler.record_function
        for _ in range(MARKS_PER_STEP):
            name = MARK.format(step=step, time_ns=self._now_ns(), ended_ns=self._marked_ns)
            with record_function(name):
                pass
            self._marked_ns = self._now_ns()

    def _now_ns(self) -> int:
        """The time since the epoch, by the ring's clock."""
        return time.perf_counter_ns() + self._offset_ns

    def _end(self, state: str) -> None:
        """Turn the profiler off, if it is on, and be over."""
        was_on, self.state = self.state == "running", state
        self._theirs.stop()
        try:
            if was_on:
                self._profiler.stop()
        finally:
            if state != "ending":
                self._profiler = None
            self.over.set()

    def _refuse(self, reason: str) -> None:
        """Be over, for a reason."""
        with self._lock:
            if not self.over.is_set():
                self.reason = reason
                self._end("refused")

    def _make_way(self) -> None:
        """The program is about to start a profiler, in any thread."""
        with self._lock:
            if self.state in {"idle", "waiting"} or self._thread == threading.get_ident():
                self._refuse(DISPLACED)
                return
            self._is_cancelled = True
        if not self.over.wait(_MAKE_WAY_S):
            raise RuntimeError("probing is profiling this process until the step in progress ends")


class _OthersProfilers:
    """Notices when somebody else starts a profiler, before it is started."""

    def __init__(self, make_way: Callable[[], None]) -> None:
        self._make_way = make_way
        self._own_thread = 0
        module = sys.modules["torch"].autograd.profiler
        self._stand_ins = [StandIn(module, name, self._begin) for name in _BEGINNINGS]

    def start(self) -> None:
        """Stand in for what every profiler begins with."""
        for stand_in in self._stand_ins:
            stand_in.start()

    def stop(self) -> None:
        """Put the functions back; one over which another wrapper lies passes through."""
        for stand_in in self._stand_ins:
            stand_in.stop()

    def our_own(self) -> _Own:
        """A context in which the calling thread starts ours."""
        return _Own(self)

    def _begin(self, original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """A profiler is about to be started."""
        if self._own_thread != threading.get_ident():
            self._make_way()
        return original(*args, **kwargs)


class _Own:
    """While it is entered, the calling thread's profiler is ours."""

    def __init__(self, others: _OthersProfilers) -> None:
        self._others = others

    def __enter__(self) -> None:
        self._others._own_thread = threading.get_ident()

    def __exit__(self, *exc: object) -> None:
        self._others._own_thread = 0


class _silence:  # noqa: N801 - reads as what it does
    """Keeps the profiler's library from writing to the program's stderr that it starts.

    It reads the variable once, when it is first used. A program that has set it has its way.
    """

    def __enter__(self) -> None:
        self._is_ours = _LOG_LEVEL not in os.environ
        if self._is_ours:
            os.environ[_LOG_LEVEL] = "99"

    def __exit__(self, *exc: object) -> None:
        if self._is_ours:
            os.environ.pop(_LOG_LEVEL, None)


def _is_warming_up(torch: ModuleType) -> bool:
    """Whether a profiler of the program's is prepared to start: then its flags are not up yet."""
    classes = [torch.profiler.profile, *torch.profiler.profile.__subclasses__()]
    for found in gc.get_referrers(*classes):
        if type(found) in classes:
            action = found.__dict__.get("current_action")
            if getattr(action, "name", "") == "WARMUP":
                return True
    return False
