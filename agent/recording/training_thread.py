"""Which thread trains, as far as stacks show it, and which were seen to.

Rules of this file: runs in any thread, beside the others; looks at frames and changes nothing.
A thread that trains writes down once that it does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from ...safety.other_stacks import current_stacks
from ...safety.this_thread import thread_name
from .safe_points import AGENT_THREAD_PREFIX

_TORCHS = ("torch.nn.modules.", "torch.autograd", "torch.optim")
_UNSURE_S = 10.0
"""For how long after the agent came late other threads may train that were not seen to."""


def training_thread() -> int:
    """The kernel number of a thread that is inside torch now, else of the main thread."""
    inside = threads_in_torch() or [threading.main_thread()]
    return number_of(inside[0])


def threads_in_torch() -> list[threading.Thread]:
    """The threads that are inside torch now; the agent's own are left out."""
    stacks = current_stacks()
    inside = {ident for ident, stack in stacks.items() if is_in_torch(stack)}
    stacks.clear()  # this very frame is among them, and would hold itself and all others
    own = AGENT_THREAD_PREFIX
    return [
        t for t in threading.enumerate() if t.ident in inside and not thread_name(t).startswith(own)
    ]


def number_of(thread: threading.Thread) -> int:
    """The kernel's number of a thread; 0 where unknown. eventlet's main thread has none."""
    return getattr(thread, "native_id", None) or (os.getpid() if is_main(thread) else 0)


def is_main(thread: threading.Thread) -> bool:
    """Whether it is the main thread, or what eventlet has put in its place."""
    return thread is threading.main_thread() or type(thread).__name__ == "_MainThread"


def correct_main_thread() -> None:
    """Have the main thread of a forked child know its own kernel number.

    Up to Python 3.13 `threading.Thread.native_id` stays the parent's there.
    """
    main: Any = threading.main_thread()
    if not os.path.exists(f"/proc/self/task/{number_of(main)}"):
        main._native_id = os.getpid()  # noqa: SLF001 - there is no other way to say it


def is_in_torch(stack: list[FrameType]) -> bool:
    """Whether a stack goes through a module, a backward pass or an optimizer."""
    names = [one.f_globals.get("__name__", "") or "" for one in stack]
    return any(name.startswith(_TORCHS) for name in names)


class Trainers:
    """The threads that were seen to make a backward pass or to step an optimizer.

    No other has gradients to let go of, since only a pass makes some.

    Attributes:
        threads: Their kernel numbers, among them those of threads that have ended since.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.threads: set[int] = set()
        self._clock = clock
        self._sure_at: float | None = None

    def begin(self, *, late: bool) -> None:
        """Recording begins, maybe in the middle of trainings."""
        self._sure_at = self._clock() + _UNSURE_S if late else None

    def is_alone(self, number: int) -> bool:
        """Whether no thread but that of a kernel number trains."""
        if self._sure_at is not None:
            if self._clock() < self._sure_at:
                return False
            self._sure_at = None
        others = self.threads - {number}
        if not others:
            return True
        ended = {one for one in others if not os.path.exists(f"/proc/self/task/{one}")}
        self.threads -= ended
        return ended == others
