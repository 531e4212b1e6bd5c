"""Has steps profiled by an agent, and reads what came of it.

Rules of this file: runs at the operator's side. The request stays open until the trace comes;
meanwhile another one asks how far it is. When the caller leaves, so does the request, and the agent
ends the profile.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import wire
from .errors import InternalError, NotAnswering, ProbingError
from .profiling import ModuleCall, Profile, Trace, read_trace, summarize
from .transport import Address, ask

if TYPE_CHECKING:
    from pathlib import Path

    from .answer import Answer

Tell = Callable[[wire.ProfileProgress], None]
_POLL_S = 0.2
_GRACE_S = 10.0
_CALLS = """
    SELECT module, thread_id, start_ns, duration_ns FROM python.torch_trace
    WHERE stage = 'forward' AND duration_ns IS NOT NULL AND step BETWEEN {first} AND {last}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsProfile:
    """A profile of some training steps.

    Attributes:
        profile: Its figures.
        trace: Its events.
        notes: What the reader should know about it.
    """

    profile: Profile
    trace: Trace
    notes: tuple[str, ...] = ()


def profile_steps(
    address: Address, steps: int, *, timeout_s: float, tell: Tell | None = None
) -> bytes:
    """Profile the next steps; returns the trace, as JSON.

    Args:
        timeout_s: How long any one step may take.
        tell: Called each time there is something new about how far it is.

    Raises:
        ProbingError: There is no profile; the sentence says why.
    """
    request = wire.ProfileRequest(steps=steps, timeout_s=timeout_s)
    outcome: list[bytes | Exception] = []
    is_done = threading.Event()

    def work() -> None:
        try:
            wait_s = (timeout_s + _GRACE_S) * (steps + 2)
            outcome.append(ask(address, "profile", body=request, timeout_s=wait_s))
        except Exception as error:  # noqa: BLE001 - raised again where the outcome is read
            outcome.append(error)
        is_done.set()

    threading.Thread(target=work, name="profile", daemon=True).start()
    _watch(address, is_done, timeout_s, tell)
    result = outcome[0]
    if isinstance(result, Exception):
        raise result
    return _unpacked(result)


def read_profile(data: bytes, query: Callable[[str], Answer]) -> StepsProfile:
    """The figures of a trace, with the modules that `query` finds in python.torch_trace."""
    trace = read_trace(data)
    first, last = trace.marks[0].step, trace.marks[-1].step
    notes: list[str] = []
    try:
        rows = query(_CALLS.format(first=first, last=last)).to_pylist()
    except ProbingError as error:
        notes.append(f"what module each operator belongs to is not known: {error.message}")
        rows = []
    if rows:
        trace = read_trace(data, tuple(ModuleCall(**row) for row in rows))
    return StepsProfile(profile=summarize(trace), trace=trace, notes=tuple(notes))


def last_profile(path: Path) -> Profile | None:
    """The figures of the last profile of a process, from its file; None where there is none.

    Raises:
        InternalError: The file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InternalError(f"the last profile cannot be read: {error.strerror}") from None
    return summarize(read_trace(_unpacked(data)))


def _watch(address: Address, is_done: threading.Event, timeout_s: float, tell: Tell | None) -> None:
    """Return when the answer is there; meanwhile pass on how far it is.

    Raises:
        NotAnswering: The process says nothing any more.
    """
    heard, known = time.monotonic(), None
    while not is_done.wait(_POLL_S):
        with contextlib.suppress(ProbingError):
            data = ask(address, "profile_progress", timeout_s=2.0)
            progress = wire.decode(wire.ProfileProgress, data)
            heard = time.monotonic()
            if tell is not None and progress != known:
                tell(progress)
            known = progress
        if time.monotonic() - heard > timeout_s + _GRACE_S:
            raise NotAnswering(f"the agent at {address}", timeout_s + _GRACE_S)


def _unpacked(data: bytes) -> bytes:
    """What was gzipped."""
    try:
        return zlib.decompress(data, wbits=31)
    except zlib.error as error:
        raise InternalError(f"the profile cannot be read: {error}") from None
