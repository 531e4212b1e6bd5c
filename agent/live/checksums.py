"""Waits for the end of a step at which the training has taken checksums of its parameters.

Rules of this file: runs in threads of the agent. The training takes them itself; where it makes no
progress they are taken from here, of what is in main memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...messages.common import LiveRows
from ...tables import PARAMETER_CHECKSUMS
from .question import WENT_ON, LiveQuestion

if TYPE_CHECKING:
    from ..sources.model.checksums import ChecksumLook
    from ..sources.shared.recording import Recording

_HOLD_S = 60.0
"""How long a training that goes on meanwhile waits at most."""
_STILL = "the training makes no progress; these are the parameters as they are"


def checksum_rows(question: LiveQuestion) -> LiveRows:
    """The rows of ``python.parameter_checksums``."""
    recording = question.training.watched()
    if recording is None:
        return LiveRows.of(PARAMETER_CHECKSUMS, (), "the process has not imported torch")
    if question.wait_s is None:  # asked in the server's own thread, which must not stand still
        return LiveRows.of(PARAMETER_CHECKSUMS, (), "no end of a step may be waited for")
    return _look(recording, question)


def _look(recording: Recording, question: LiveQuestion) -> LiveRows:
    """One look, by the training itself or from here."""
    from ..sources.model.checksums import ChecksumLook, take_checksums

    only_random, training = question.only_random, question.training
    look = ChecksumLook(recording, question.at_step, only_random=only_random)
    training.safe_points.begin_job(look)
    try:
        note = _wait(look, question)
    finally:
        training.safe_points.end_job(look)
    found = look.found
    if found is None and note == _STILL:
        step = training.step()
        over = None if step is None else step - 1
        with question.beside(_HOLD_S) as is_still:
            if is_still:
                found = take_checksums(
                    recording, over, reads_devices=False, only_random=only_random
                )
            else:
                note = WENT_ON
    elif found is not None:
        note = f"the training was held for {1e3 * found.held_s:.0f} ms"
    if look.reason is not None:
        note = f"no checksums could be taken: {look.reason}"
    return LiveRows.of(PARAMETER_CHECKSUMS, found.rows if found else (), note)


def _wait(look: ChecksumLook, question: LiveQuestion) -> str | None:
    """Wait for the end of the look; returns why it did not come."""
    why, wait_s = question.wait(look.is_over), question.wait_s or 0.0
    if why == "late":
        return f"the step did not end within {wait_s:g} s, and while a step runs it must not be"
    if why == "gone":
        return "nobody waits any more"
    return _STILL if why else None
