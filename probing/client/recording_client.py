"""Has allocations recorded by an agent, and fetches what came of it.

Rules of this file: runs at the operator's side.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..allocations import Recording, read_recording
from ..errors import InternalError
from ..linux.foreign_files import read_file
from ..messages import common as wire
from ..messages.about.allocation import SNAPSHOT_STEPS, RecordStatus, SnapshotRequest
from ..messages.limits import LARGE_ANSWER_BYTES
from ..reach.address import Address
from ..reach.transport import ask
from .long_questions import ask_and_watch

Tell = Callable[[RecordStatus], None]
_GRACE_S = 30.0


def recording_status(address: Address, timeout_s: float) -> RecordStatus:
    """How the recording stands."""
    return wire.decode(RecordStatus, ask(address, "recording", timeout_s=timeout_s))


def take_snapshot(
    address: Address,
    steps: int | None,
    *,
    timeout_s: float,
    tell: Tell | None = None,
    first_step: int | None = None,
) -> Recording:
    """What has been recorded, or else what the next steps allocate.

    Args:
        steps: How many steps to record if none were; None for the usual number.
        timeout_s: How long any one step may take.
        tell: Called each time there is something new about how far it is.
        first_step: The first step to record; None for the next.

    Raises:
        ProbingError: There is no snapshot; the sentence says why.
    """
    count = SNAPSHOT_STEPS if steps is None else steps
    request = SnapshotRequest(steps=count, timeout_s=timeout_s, first_step=first_step)
    recording = ask_and_watch(
        address,
        "snapshot",
        request,
        timeout_s=(timeout_s + _GRACE_S) * (request.steps + 2),
        silence_s=timeout_s + _GRACE_S,
        progress=lambda limit_s: recording_status(address, limit_s),
        tell=tell,
    )
    return read_recording(recording)


def last_recording(path: Path) -> Recording | None:
    """The last recording of a process, from its file; None where there is none.

    Raises:
        InternalError: The file cannot be read.
    """
    try:
        data = read_file(path, LARGE_ANSWER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        sentence = f"the last recording of allocations cannot be read: {error.strerror}"
        raise InternalError(sentence) from None
    return read_recording(data)
