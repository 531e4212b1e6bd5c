"""Waits until the training has shown what a forward call looks like.

Rules of this file: runs in threads of the agent; touches no module itself. Several who ask at the
same time share one look. Every wait has an end: a deadline, proof that the training stands still,
the client's or the agent's leaving.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from ...messages.common import LiveRows
from ..recording.stillness import Stillness
from ..sources.calls.observation import Observation
from ..sources.model.model_rows import module_rows

if TYPE_CHECKING:
    from .live import LiveQuestion

_POLL_S = 0.05
_STILL_S = 2.0
"""How long the training must have been proven to stand still before nobody waits any more."""

_waiting: dict[Observation, int] = {}
_lock = threading.Lock()


def observed_modules(question: LiveQuestion) -> LiveRows:
    """The rows of ``python.modules``, with what the next call of each root shows if it is asked."""
    recording, note = question.training.watched(), None
    is_observed = recording is not None and question.wait_s is not None
    if is_observed:
        note = _observe(recording, question)
    return module_rows(recording, is_observed=is_observed, note=note)


def _observe(recording: Any, question: LiveQuestion) -> str | None:
    """Wait for a look at the model; returns what went wrong, if anything did."""
    observation = _join(recording)
    try:
        failure = _wait(recording, observation, question)
    finally:
        _leave(observation)
    fresh = dict(observation.seen)
    kept = {key: seen for key, seen in recording.seen.items() if seen.reference() is not None}
    recording.seen = {**kept, **fresh}
    if observation.guard.problem is not None:
        return f"not everything could be observed: {observation.guard.problem}"
    if failure is None or fresh:
        return None
    steps = [seen.step for seen in kept.values()]
    instead = f"are those of step {max(steps)}" if steps else "are not known"
    return f"{failure}; shapes and FLOPs {instead}"


def _join(recording: Any) -> Observation:
    """The observation that is wanted already, or a new one."""
    with _lock:
        observation: Observation = recording.observation or Observation(recording)
        if observation.is_over.is_set():
            observation = Observation(recording)
        _waiting[observation] = _waiting.get(observation, 0) + 1
        recording.observation = observation
    return observation


def _leave(observation: Observation) -> None:
    """The last one who leaves ends the observation."""
    with _lock:
        _waiting[observation] -= 1
        if not _waiting[observation]:
            del _waiting[observation]
            observation.give_up()


def _wait(recording: Any, observation: Observation, question: LiveQuestion) -> str | None:
    """Wait for the end of the observation; returns why it did not come."""
    training, wait_s, session = question.training, question.wait_s or 0.0, recording.session
    stillness = Stillness(training)
    end = time.monotonic() + wait_s
    while not observation.is_over.wait(_POLL_S):
        if time.monotonic() > end:
            return f"no model was called within {wait_s:g} s"
        if question.cancelled.is_set() or recording.session != session:
            return "recording has stopped meanwhile"
        if not question.patient and stillness.lasts(_STILL_S):
            return "no model was called, for the training makes no progress"
    return None
