"""Waits until the training thread has come to the place of an action, and has done its work.

Rules of this file: runs in the action's own thread of the agent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ActTimedOut
from ...messages.about.act import MARKS, Prepared
from .pending import PendingAction

if TYPE_CHECKING:
    from ..sources.actions.targets.scene import Scene

_POLL_S = 0.1


def wait_applied(
    kept: PendingAction, scene: Scene, work: Callable[[], None], until: float
) -> tuple[float, float | None, bool]:
    """Have the training thread do the work.

    Returns:
        How long that was waited for, how long it took, and whether it was at the call of a model.

    Raises:
        ActTimedOut: The training did not reach the end of a step.
        ActRefused: Nobody wants it any more, or the work has refused.
    """
    from ..sources.actions.moments.rendezvous import Rendezvous
    from ..sources.actions.moments.step_start import StepStart

    def wanted() -> None:
        kept.refuse_unwanted()
        work()

    kept.refuse_unwanted()
    began, training = time.monotonic(), scene.training
    mark, _ = scene.place() if kept.ranks is not None else ("", 0)
    if mark:
        kept.rendezvous = Rendezvous(lambda: scene.place()[1])
    start = StepStart(training.safe_points, training.thread_id, wanted, kept.rendezvous)
    start.begin()
    if mark:  # from here on no end of a step is missed
        took_ns = scene.recording.rows.took_ns
        kept.prepared.set_result(
            Prepared(
                number=kept.number,
                mark=mark,
                position=scene.place()[1],
                step_s=took_ns * 1e-9 or None,
            )
        )
    while not start.wait(_POLL_S):
        is_late = time.monotonic() > until
        if (is_late or kept.is_cancelled) and start.give_up():
            if is_late:
                raise too_late(kept, mark)
            kept.refuse_unwanted()
    if start.fault is not None:
        raise start.fault
    pause_s = start.pause_s or 0.0
    return time.monotonic() - began - pause_s, pause_s, start.is_at_call


def too_late(kept: PendingAction, mark: str) -> ActTimedOut:
    """Why the place has not been come to in time."""
    if kept.rendezvous is None:
        return ActTimedOut(kept.limit_s)
    ended, moved = kept.rendezvous.so_far()
    if mark != MARKS[1]:
        why = (
            "ranks find it by the collectives of the job's process group, of which these steps"
            f" began {moved or 'none'}"
        )
    else:
        why = (
            "no collectives of the whole job tell which step is the same on all ranks, so they"
            " count their steps, and this one has not made as many as the foremost"
        )
    return ActTimedOut(kept.limit_s, ended=ended, why=why if ended else "")
