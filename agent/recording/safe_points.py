"""Holds the training thread at a safe point while code that was sent looks at its tensors.

Rules of this file: standard library only. A safe point is a place in the training loop where
no tensor is being changed: after an optimizer step, or before the root module is called. While
somebody works beside a training that stands still, so is the beginning of a backward pass and of an
optimizer's step. None of them is one while a backward pass is under way, in whatever thread: hooks
of tensors and modules, and optimizers that step in them, come by here too.
Passing one costs the training thread one attribute look-up when nobody waits. When somebody
does, the training thread stands still until that code is done or its time is up; the code runs
in a thread of its own, so that it can be left behind. Other threads that come to a backward pass or
to an optimizer's step meanwhile wait as well. What must run in the training thread itself,
a `StepEndJob`, is called there at each step's end until it says that it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ...safety.guard import Guard
from ...safety.this_thread import is_called

AGENT_THREAD_PREFIX = "probing-"
"""How the names of the agent's own threads begin."""
_OTHERS_PATIENCE_S = 0.5
"""How long a thread at a safe point waits for a backward pass or a step of another one to end."""
_POLL_S = 0.001
_OFTEN = 8
_TRANSFORMED = "its steps end inside of functions of torch.func, where nothing may be begun"


class AtWork(Protocol):
    """Tells what torch is in the middle of."""

    def is_here(self) -> bool:
        """Whether the calling thread is inside of what no safe point may fall into."""

    def is_elsewhere(self) -> bool:
        """Whether another thread is inside a backward pass or an optimizer's step."""

    def is_transformed(self) -> bool:
        """Whether the calling thread is inside a function that torch transforms.

        Tensors there are not what they seem: others may look on, but nothing is computed by it.
        """


class _Idle:
    """Where torch is not known to do anything."""

    def is_here(self) -> bool:
        """See `AtWork`."""
        return False

    def is_elsewhere(self) -> bool:
        """See `AtWork`."""
        return False

    def is_transformed(self) -> bool:
        """See `AtWork`."""
        return False


class StepEndJob(Protocol):
    """Something that runs in the training thread itself, between steps."""

    def step_ended(self) -> bool:
        """Runs at the end of each step; returns whether it has nothing more to do."""

    def failed(self, reason: str) -> None:
        """`step_ended` has raised, and is not called again; runs in the training thread."""


class Visit:
    """One piece of code that wants the training to stand still.

    The asking thread waits until `is_held` and does its work; withdrawing the visit from its
    `SafePoints` lets the training go on.

    Attributes:
        is_beside: Whether its work begins without the training held.
        thread_id: The kernel number of the thread that stands still for it; None while none does.
    """

    def __init__(self, hold_s: float, points: SafePoints) -> None:
        self._hold_s = hold_s
        self._points = points
        self.thread_id: int | None = None
        self._held = threading.Event()
        self._done = threading.Event()
        self.is_beside = False

    def is_held(self) -> bool:
        """Whether the training thread stands still for this visit."""
        return self._held.is_set()

    def wait_held(self, timeout_s: float) -> None:
        """Wait until the training thread stands still, at most that long."""
        self._held.wait(timeout_s)

    def close_way_back(self) -> None:
        """The work begins without the training held: should it go on now, it must wait."""
        self.is_beside = self._points.closed = True

    def hold(self) -> None:
        """Stand still until the work is done or its time is up; runs in the training thread."""
        self.thread_id = threading.get_native_id()
        self._held.set()
        with self._points.standing(self):
            self.wait_done()

    def wait_done(self) -> None:
        """The same, where this is no safe point: the work gets no leave to begin by it.

        Once its time is up, no later step is held for it either.
        """
        if not self._done.wait(self._hold_s):
            self._points.withdraw(self)

    def finish(self) -> None:
        """The work is done."""
        self._done.set()


class Look(Protocol):
    """Wants to see what the training reads, in the training thread itself; never raises."""

    def root_called(self) -> None:
        """A root module is about to be called, from one of the frames above."""

    def batch_came(self, batch: object) -> None:
        """A batch has been fetched."""


class _Gate:
    """A thread stands at a safe point: others wait before what they may not begin.

    Attributes:
        owner: The thread.
        over: Set once it goes on.
    """

    __slots__ = ("over", "owner")

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.over = threading.Event()


class SafePoints:
    """Where the training thread asks whether anybody wants it to stand still.

    Attributes:
        looks: Who wants to see what the training reads.
        waiting: True while somebody does, or has a job to run; read by the training thread without
            a lock.
        closed: True while somebody works, with the training held or without: then a backward pass
            and an optimizer wait before they begin, in every thread, and so does the call of a
            root module, where otherwise only a step's end does.
        stepping: Whether a training step has ended: then a step's end is the safe point.
        at_work: What torch is in the middle of.
    """

    def __init__(self) -> None:
        self.at_work: AtWork = _Idle()
        self._barred = 0
        self._gate: _Gate | None = None
        self.waiting = False
        self.closed = False
        self.stepping = False
        self.looks: tuple[Look, ...] = ()
        self._visits: list[Visit] = []
        self._standing: set[Visit] = set()
        self._let_go_ns = 0
        self._jobs: list[StepEndJob] = []
        self._hurried: tuple[StepEndJob, ...] = ()
        self._guard = Guard("step ends", lambda: None)  # each that fails is ended by itself
        self._lock = threading.RLock()  # a signal's handler may come back here

    @property
    def obstacle(self) -> str:
        """Why no job was run at the last ends of many steps; "" where one was."""
        return _TRANSFORMED if self._barred >= _OFTEN else ""

    def step_ended(self) -> None:
        """A training step has ended; runs in the training thread."""
        if self.waiting:
            self._come(works=True)

    def root_called(self) -> None:
        """A root module is about to be called; runs in the training thread."""
        if not self.waiting:
            return
        if self.closed:
            self._come(works=False)
        if not self.at_work.is_here():
            for look in self.looks:
                look.root_called()
            if self._hurried:
                self._hurry()
            if not self.stepping:
                self._come(works=True)

    def torch_called(self) -> None:
        """A backward pass or an optimizer's step is about to begin; in the training thread."""
        if self.closed:
            self._come(works=False)

    @contextmanager
    def others_held_up(self) -> Iterator[bool]:
        """Let no other thread begin a backward pass or an optimizer's step meanwhile.

        Yields:
            Whether none is inside of one; if not, this is no safe point.
        """
        with self._lock:
            gate, is_mine = self._gate, self._gate is None
            if gate is None:
                gate = self._gate = _Gate()
                self.closed = True
        if not is_mine:
            is_nested = gate.owner == threading.get_ident()
            if not is_nested:
                gate.over.wait()
            yield is_nested
            return
        try:
            yield self._wait_others()
        finally:
            with self._lock:
                self._gate = None
                self._settle()
            gate.over.set()

    def batch_came(self, batch: object) -> None:
        """A batch has been fetched; runs in the training thread."""
        if self.looks and not self.at_work.is_here():
            for look in self.looks:
                look.batch_came(batch)

    def begin_look(self, look: Look) -> None:
        """From now on show it what the training reads."""
        with self._lock:
            self.looks = (*self.looks, look)
            self.waiting = True

    def end_look(self, look: Look) -> None:
        """Show it nothing any more."""
        with self._lock:
            self.looks = tuple([other for other in self.looks if other is not look])
            self._settle()

    def request(self, hold_s: float) -> Visit:
        """Ask the training thread to stand still, for at most `hold_s`, at a safe point."""
        visit = Visit(hold_s, self)
        with self._lock:
            self._visits.append(visit)
            self.waiting = True
        return visit

    def withdraw(self, visit: Visit) -> None:
        """The visit is over, whether or not the training thread came to hold."""
        with self._lock:
            self._visits = [other for other in self._visits if other is not visit]
            self._settle()
        visit.finish()

    @contextmanager
    def standing(self, visit: Visit) -> Iterator[None]:
        """The training thread stands still for a visit meanwhile."""
        self._standing.add(visit)
        try:
            yield
        finally:
            self._let_go_ns = time.perf_counter_ns()
            self._standing.discard(visit)

    def held_ns(self) -> int:
        """When the training last stood still for a visit, by `perf_counter_ns`; 0 for never."""
        return time.perf_counter_ns() if self._standing else self._let_go_ns

    @contextmanager
    def way_closed(self, hold_s: float) -> Iterator[None]:
        """Work beside a training that stands still: should it go on, it waits, at most so long."""
        visit = self.request(hold_s)
        visit.close_way_back()
        try:
            yield
        finally:
            self.withdraw(visit)

    def begin_job(self, job: StepEndJob) -> None:
        """Have a job run at the end of each step, from the next one on."""
        with self._lock:
            self._jobs.append(job)
            self.waiting = True

    def end_job(self, job: StepEndJob) -> None:
        """Have a job run no more; to end one twice is harmless."""
        with self._lock:
            self._jobs = [other for other in self._jobs if other is not job]
            self._hurried = tuple([other for other in self._hurried if other is not job])
            self._settle()

    def hurry(self, job: StepEndJob) -> None:
        """Have a job run as a root module is called next, too: no step may end for long."""
        with self._lock:
            if job in self._jobs:
                self._hurried = (*self._hurried, job)

    def _settle(self) -> None:
        """Let the training thread pass by when nobody needs it; called with the lock."""
        self.waiting = bool(self._visits or self._jobs or self.looks)
        self.closed = self._gate is not None or any(visit.is_beside for visit in self._visits)

    def _come(self, *, works: bool) -> None:
        """Come by a place that is a safe point, unless torch is in the middle of something.

        The agent's own threads make no steps, and a visitor's own calls pass through.

        Args:
            works: Whether jobs are run and every visit is let in; else only those are that may
                have begun already.
        """
        if is_called(AGENT_THREAD_PREFIX):
            return
        if self.at_work.is_here():
            if not works:  # whoever works beside must still be over before more is changed
                for visit in self._visits_now(beside=True):
                    visit.wait_done()
            return
        with self.others_held_up() as are_resting:
            if works and are_resting:
                self._barred = self._barred + 1 if self.at_work.is_transformed() else 0
                if not self._barred:
                    self._work()
            for visit in self._visits_now(beside=not works):
                if are_resting:
                    visit.hold()
                elif visit.is_beside:
                    visit.wait_done()

    def _wait_others(self) -> bool:
        """Wait a little until no other thread is in the middle of a pass or a step."""
        end = time.monotonic() + _OTHERS_PATIENCE_S
        while self.at_work.is_elsewhere():
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def _visits_now(self, *, beside: bool) -> list[Visit]:
        """The visits that wait; or of those only the ones that work beside the training."""
        with self._lock:
            return [visit for visit in self._visits if visit.is_beside or not beside]

    def _hurry(self) -> None:
        """Run those that cannot wait, unless this thread is the agent's own."""
        if not is_called(AGENT_THREAD_PREFIX):
            self._run_jobs(self._hurried)

    def _work(self) -> None:
        with self._lock:
            jobs = tuple(self._jobs)
        self._run_jobs(jobs)

    def _run_jobs(self, jobs: tuple[StepEndJob, ...]) -> None:
        for job in jobs:
            faults = self._guard.faults
            self._guard.run(self._run_job, job)
            if self._guard.faults > faults:
                self._guard.run(self.end_job, job)
                self._guard.run(job.failed, self._guard.last.strip().rpartition("\n")[2])

    def _run_job(self, job: StepEndJob) -> None:
        if job.step_ended():
            self.end_job(job)
