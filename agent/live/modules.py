"""Waits until the training has shown what a forward call looks like.

Rules of this file: runs in threads of the agent; touches no module itself. Several who ask at the
same time share one look.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...messages.common import LiveRows
from ..sources.calls.observation import Observation
from ..sources.model.model_rows import module_rows

if TYPE_CHECKING:
    from ..sources.shared.recording import Recording
    from .question import LiveQuestion

_waiting: dict[Observation, int] = {}
_lock = threading.Lock()


def observed_modules(question: LiveQuestion) -> LiveRows:
    """The rows of ``python.modules``, with what the next call of each root shows if it is asked."""
    recording, note = question.training.watched(), None
    is_observed = question.wait_s is not None
    if recording is not None and is_observed:
        note = _observe(recording, question)
    return module_rows(recording, is_observed=is_observed, note=note)


def _observe(recording: Recording, question: LiveQuestion) -> str | None:
    """Wait for a look at the model; returns what went wrong, if anything did."""
    observation = _join(recording)
    try:
        failure = _wait(recording, observation, question)
    finally:
        _leave(observation)
    fresh = dict(observation.seen)
    kept = {key: seen for key, seen in recording.looks.seen.items() if seen.reference() is not None}
    recording.looks.seen = {**kept, **fresh}
    if observation.guard.problem is not None:
        return f"not everything could be observed: {observation.guard.problem}"
    if failure is None or fresh:
        return None
    steps = [seen.step for seen in kept.values()]
    instead = f"are those of step {max(steps)}" if steps else "are not known"
    return f"{failure}; shapes and FLOPs {instead}"


def _join(recording: Recording) -> Observation:
    """The observation that is wanted already, or a new one."""
    with _lock:
        observation = recording.looks.modules
        if not isinstance(observation, Observation) or observation.is_over.is_set():
            observation = Observation(recording)
        _waiting[observation] = _waiting.get(observation, 0) + 1
        recording.looks.modules = observation
    return observation


def _leave(observation: Observation) -> None:
    """The last one who leaves ends the observation."""
    with _lock:
        _waiting[observation] -= 1
        if not _waiting[observation]:
            del _waiting[observation]
            observation.give_up()


def _wait(recording: Recording, observation: Observation, question: LiveQuestion) -> str | None:
    """Wait for the end of the observation; returns why it did not come."""
    session = recording.session
    why = question.wait(
        observation.is_over,
        patient=question.patient,
        is_void=lambda: bool(recording.session != session),
    )
    if why == "late":
        return f"no model was called within {question.wait_s or 0.0:g} s"
    if why == "gone":
        return "recording has stopped meanwhile"
    return "no model was called, for the training makes no progress" if why else None
