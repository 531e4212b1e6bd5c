"""Has steps profiled by an agent, and reads what came of it.

Rules of this file: runs at the operator's side.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import InternalError, ProbingError
from ..linux.foreign_files import read_file, unzipped
from ..messages import common as wire
from ..messages.frozen import InNotebooks, dataclass
from ..messages.limits import LARGE_ANSWER_BYTES
from ..profiling import ModuleCall, PhaseTime, Profile, Trace, phase_times, read_trace, summarize
from ..reach.address import Address
from ..reach.transport import ask
from ..tables import STEP_PHASES
from .long_questions import ask_and_watch

if TYPE_CHECKING:
    from pathlib import Path

    from ..sql.answer import Answer

Tell = Callable[[wire.ProfileProgress], None]
_GRACE_S = 10.0
_CALLS = """
    SELECT module, thread_id, start_ns, duration_ns FROM python.torch_trace
    WHERE stage = 'forward' AND duration_ns IS NOT NULL AND step BETWEEN {first} AND {last}
"""
_PHASES = (*STEP_PHASES, "gradient_sync")
_PHASE_TIMES = (
    f"SELECT {', '.join(f'sum({phase}_s) AS {phase}' for phase in _PHASES)}"  # noqa: S608 - names
    " FROM python.steps WHERE duration_ns IS NOT NULL AND step BETWEEN {first} AND {last}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsProfile(InNotebooks):
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
    trace = ask_and_watch(
        address,
        "profile",
        request,
        timeout_s=(timeout_s + _GRACE_S) * (steps + 2),
        silence_s=timeout_s + _GRACE_S,
        progress=lambda limit_s: _progress(address, limit_s),
        tell=tell,
    )
    return _unpacked(trace)


def read_profile(data: bytes, query: Callable[[str], Answer]) -> StepsProfile:
    """The figures of a trace, with the modules that `query` finds in python.torch_trace."""
    trace = read_trace(data)
    first, last = trace.marks[0].step, trace.marks[-1].step
    notes: list[str] = []
    phases: tuple[PhaseTime, ...] = ()
    try:
        phases = phase_times(query(_PHASE_TIMES.format(first=first, last=last - 1)).to_pylist()[0])
        rows = query(_CALLS.format(first=first, last=last)).to_pylist()
    except ProbingError as error:
        notes.append(f"what module each operator belongs to is not known: {error.message}")
        rows = []
    if rows:
        trace = read_trace(data, tuple(ModuleCall(**row) for row in rows))
    profile = replace(summarize(trace), phases=phases)
    return StepsProfile(profile=profile, trace=trace, notes=tuple(notes))


def last_profile(path: Path) -> Profile | None:
    """The figures of the last profile of a process, from its file; None where there is none.

    Raises:
        InternalError: The file cannot be read.
    """
    try:
        data = read_file(path, LARGE_ANSWER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InternalError(f"the last profile cannot be read: {error.strerror}") from None
    return summarize(read_trace(_unpacked(data)))


def _progress(address: Address, timeout_s: float) -> wire.ProfileProgress:
    return wire.decode(wire.ProfileProgress, ask(address, "profile_progress", timeout_s=timeout_s))


def _unpacked(data: bytes) -> bytes:
    """What was gzipped."""
    try:
        return unzipped(data, LARGE_ANSWER_BYTES)
    except (OSError, zlib.error) as error:
        raise InternalError(f"the profile cannot be read: {error}") from None
