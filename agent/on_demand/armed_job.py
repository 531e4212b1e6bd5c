"""What is recorded on demand: its state, its progress and its end, whatever it records.

Rules of this file: the work is done in the training thread, at the ends of steps; other threads
read how far it is, and may end it.
"""

from __future__ import annotations

import time

from ...messages.common import Armed


class ArmedJob:
    """Something that works at the ends of some steps, and ends by itself; a `StepEndJob`.

    A kind of it says in `_work` what it does as a step has ended, and in `_let_go` what it leaves
    then.

    Attributes:
        what: What it is called.
        state: ``waiting`` for its first step, ``armed``, ``over`` or ``failed``; then `reason`
            says why.
        done: Steps that are done.
        found: Rows written, or what else it looks for.
        first_step: The first of its steps.
        last_step: The last of them.
        moved_s: When a step ended last, by the monotonic clock.
    """

    what = ""

    def __init__(self, number: int, steps: int = 1) -> None:
        self.number = number
        self.steps = steps
        self.state = "waiting"
        self.reason = ""
        self.done = self.found = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.moved_s = time.monotonic()
        self._is_ended = False

    @property
    def is_over(self) -> bool:
        """Whether it works no more."""
        return self.state in {"over", "failed"}

    def armed(self) -> Armed:
        """How far it is."""
        return Armed(
            what=self.what,
            number=self.number,
            state=self.state,
            steps=self.steps,
            done=self.done,
            found=self.found,
            still_s=time.monotonic() - self.moved_s,
            first_step=self.first_step,
            last_step=self.last_step,
            reason=self.reason,
            notes=self.notes(),
        )

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        return ()

    def saw(self, step: int) -> None:
        """One more of its steps has been seen."""
        self.first_step = step if self.first_step is None else self.first_step
        self.last_step = step

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        self.moved_s = time.monotonic()
        if not self.is_over:
            self._work()
            if self._is_ended:  # by another thread meanwhile: what came after it goes, too
                self.end()
        return self.is_over

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        self._is_ended = True
        self.state, self.reason = "failed", reason
        self._let_go()

    def end(self) -> None:
        """Do nothing any more; to end it twice is harmless."""
        self._is_ended = True
        if self.state != "failed":
            self.state = "over"
        self._let_go()

    def wait_off(self, timeout_s: float) -> None:
        """Wait until the training is as before; most leave nothing in place."""

    def _work(self) -> None:
        """A step has ended."""

    def _let_go(self) -> None:
        """Give up what is held for the work."""
