"""Waits until the training has shown where its memory is.

Rules of this file: runs in threads of the agent. The training shows it by itself at the end of a
step; where it makes no progress it is looked at from here. Who asks while a look is under way
shares it, and so does who asks right after it: no more is held on to than numbers.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...tables import ACTIVATIONS, MOMENTS
from .question import WENT_ON, LiveQuestion

if TYPE_CHECKING:
    from ..sources.shared.recording import Recording
    from ..sources.storage.memory_look import MemoryLook, Moment

_STILL = "the training makes no progress"
_NOT_BEGUN = "the training has ended no step yet"
_HOLD_S = 60.0
"""How long a training that goes on meanwhile waits at most."""
_POLL_S = 0.05
_FRESH_S = 1.0
"""For how long a look answers further questions: one command asks for several tables."""


class Seen(NamedTuple):
    """What a look has shown.

    Attributes:
        moments: One or two moments; none when nothing could be seen.
        note: What the reader should know about it.
        at: When it was over, by the monotonic clock.
    """

    moments: tuple[Moment, ...]
    note: str | None
    at: float


class Looks:
    """The look under way, and the last one; one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recording: Callable[[], Any] = lambda: None
        self._last: Seen | None = None

    def see(self, question: LiveQuestion) -> Seen:
        """Look, or hand out the last look if it is fresh or nothing may be waited for."""
        recording = question.training.watched()
        if recording is None:
            return Seen((), "the process has not imported torch", 0.0)
        if question.wait_s is None:  # asked in the server's own thread, which must not stand still
            last = self._last if self._recording() is recording else None
            return last or Seen((), "nothing has been looked at yet", 0.0)
        with self._lock:
            last = self._last if self._recording() is recording else None
            if last is not None and time.monotonic() - last.at < _FRESH_S:
                return last
            if question.table == ACTIVATIONS.name:  # of one moment: the other is not looked at
                return _look(recording, question, only_backward=True)
            self._last = seen = _look(recording, question)
            self._recording = weakref.ref(recording)
            return seen


LOOKS = Looks()


def _look(recording: Recording, question: LiveQuestion, *, only_backward: bool = False) -> Seen:
    """One look, by the training itself or from here."""
    from ..sources.storage.memory_look import NOW, MemoryLook, look

    training = question.training
    watching = MemoryLook(recording, only_backward=only_backward)
    training.safe_points.begin_job(watching)
    try:
        note = _wait(watching, question, expected=1 if only_backward else len(MOMENTS))
    finally:
        watching.give_up()
        training.safe_points.end_job(watching)
    moments = tuple(watching.moments)
    if watching.reason is not None:
        note = f"not everything could be looked at: {watching.reason}"
    is_still = note is not None and note.startswith((_STILL, _NOT_BEGUN))
    obstacle = training.safe_points.obstacle
    if not moments and obstacle and not only_backward:
        return _look_beside(recording, question, obstacle)
    if not moments and is_still and not only_backward:
        with question.beside(_HOLD_S) as is_standing:
            if is_standing:
                moments = (look(recording, NOW, training.step(), is_still=True),)
            note = note if is_standing else WENT_ON
    elif moments:
        held_s = max(moment.held_s for moment in moments)
        held = f"the training was held for at most {1e3 * held_s:.0f} ms at a time"
        note = held if note is None else f"{note}; {held}"
    told = [text for text in (note, *_left_out(moments)) if text is not None]
    return Seen(moments, "; ".join(told) or None, time.monotonic())


def _left_out(moments: Sequence[Moment]) -> Iterator[str]:
    """What there was no time for, and what could not be told."""
    walked = [moment.nodes for moment in moments if moment.nodes is not None]
    if walked:
        newest = f"the {min(walked):,} newest nodes of autograd's graphs"
        yield f"activations are those of {newest}, for want of time"
    tensors = max((moment.left_out for moment in moments), default=0)
    if tensors:
        yield (
            f"{tensors:,} tensors of category other, the oldest, were left out, for want of time:"
            " there is more than is shown"
        )
    if not all(moment.knows_gradients for moment in moments):
        yield (
            "gradients are not told from other tensors: several threads train, and others were at"
            " work on theirs"
        )


def _look_beside(recording: Recording, question: LiveQuestion, obstacle: str) -> Seen:
    """The first moment alone, from here, while the training is held at the end of a step."""
    from ..sources.storage.memory_look import NOW, look

    points, end = question.training.safe_points, time.monotonic() + (question.wait_s or 0.0)
    visit = points.request(_HOLD_S)
    try:
        while not visit.is_held():
            if question.cancelled.is_set() or time.monotonic() > end:
                return Seen((), f"no step ended in time: {obstacle}", time.monotonic())
            visit.wait_held(_POLL_S)
        moments = (look(recording, NOW, question.training.step()),)
    finally:
        points.withdraw(visit)
    note = f"{obstacle}: shown is what there is as one ends, with nothing of the next backward pass"
    return Seen(moments, "; ".join((note, *_left_out(moments))), time.monotonic())


def _wait(watching: MemoryLook, question: LiveQuestion, *, expected: int) -> str | None:
    """Wait for the end of the look; returns why it did not come."""
    points, wait_s = question.training.safe_points, question.wait_s or 0.0
    why = question.wait(watching.is_over, is_void=lambda: bool(points.obstacle))
    if why == "gone" and points.obstacle:
        return points.obstacle
    if why == "gone":
        return "nobody waits any more"
    if why == "still" and watching.has_begun:
        return f"{_STILL} since: the next backward pass was not waited for"
    if why == "still":
        what = _STILL if "optimizer" in question.training.names() else _NOT_BEGUN
        return f"{what}: shown is what there is now, with nothing of the next backward pass"
    if why == "late" and watching.has_begun:
        return f"no backward pass began within {wait_s:g} s: its activations are not known"
    if why == "late":
        return f"no step ended within {wait_s:g} s, and while a step runs it must not be"
    if len(watching.moments) < expected and watching.reason is None:
        return "no backward pass began in the next step: activations are those that are alive now"
    return None
