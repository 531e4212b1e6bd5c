"""Has allocations recorded by an agent, and fetches what came of it.

Rules of this file: runs at the operator's side. A request for a snapshot stays open until the
recording comes; meanwhile another one asks how far it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import wire
from .allocation_wire import (
    RECORD_STEPS,
    SNAPSHOT_STEPS,
    RecordRequest,
    RecordStatus,
    SnapshotRequest,
)
from .allocations import Recording, read_recording
from .errors import InternalError, NotAnswering, ProbingError
from .transport import Address, ask

Tell = Callable[[RecordStatus], None]
_POLL_S = 0.2
_GRACE_S = 30.0


def change_recording(
    address: Address, state: str, steps: int | None, *, timeout_s: float
) -> RecordStatus:
    """Begin or end a recording; returns how it stands then."""
    request = RecordRequest(state=state, steps=RECORD_STEPS if steps is None else steps)
    data = ask(address, "record", body=request, timeout_s=timeout_s)
    return wire.decode(RecordStatus, data)


def recording_status(address: Address, timeout_s: float) -> RecordStatus:
    """How the recording stands."""
    return wire.decode(RecordStatus, ask(address, "recording", timeout_s=timeout_s))


def take_snapshot(
    address: Address, steps: int | None, *, timeout_s: float, tell: Tell | None = None
) -> Recording:
    """What has been recorded, or else what the next steps allocate.

    Args:
        steps: How many steps to record if none were; None for the usual number.
        timeout_s: How long any one step may take.
        tell: Called each time there is something new about how far it is.

    Raises:
        ProbingError: There is no snapshot; the sentence says why.
    """
    count = SNAPSHOT_STEPS if steps is None else steps
    request = SnapshotRequest(steps=count, timeout_s=timeout_s)
    outcome: list[Any] = []
    is_done = threading.Event()

    def work() -> None:
        try:
            wait_s = (timeout_s + _GRACE_S) * (request.steps + 2)
            outcome.append(ask(address, "snapshot", body=request, timeout_s=wait_s))
        except Exception as error:  # noqa: BLE001 - raised again where the outcome is read
            outcome.append(error)
        is_done.set()

    threading.Thread(target=work, name="snapshot", daemon=True).start()
    _watch(address, is_done, timeout_s, tell)
    result = outcome[0]
    if isinstance(result, Exception):
        raise result
    return read_recording(result)


def last_recording(path: Path) -> Recording | None:
    """The last recording of a process, from its file; None where there is none.

    Raises:
        InternalError: The file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        sentence = f"the last recording of allocations cannot be read: {error.strerror}"
        raise InternalError(sentence) from None
    return read_recording(data)


def _watch(address: Address, is_done: threading.Event, timeout_s: float, tell: Tell | None) -> None:
    """Return when the answer is there; meanwhile pass on how far it is.

    Raises:
        NotAnswering: The process says nothing any more.
    """
    heard, known = time.monotonic(), None
    while not is_done.wait(_POLL_S):
        with contextlib.suppress(ProbingError):
            status = recording_status(address, 2.0)
            heard = time.monotonic()
            if tell is not None and status != known:
                tell(status)
            known = status
        if time.monotonic() - heard > timeout_s + _GRACE_S:
            raise NotAnswering(f"the agent at {address}", timeout_s + _GRACE_S)
