"""The last calls by the end of which the memory in use had grown, from the newest rows on record.

Rules of this file: reads this process's own ring of python.torch_trace, the newest few thousand
rows of it; changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ring.format import DONE, FAILED, MARKER, NULL_INT
from ....ring.writer import RingWriter
from ....tables import STAGES

MOST_EVENTS = 50
_LOOKS_AT = 4096
_STEP = STAGES.index("step")


class Growth(NamedTuple):
    """A call by the end of which the memory in use had grown.

    Attributes:
        module: The number of its module's name.
        stage: The number of its stage.
        ended_ns: When it had ended, by the monotonic clock.
    """

    step: int
    module: int
    stage: int
    growth_bytes: int
    allocated_bytes: int
    ended_ns: int


def growth_before(trace: RingWriter) -> list[Growth]:
    """The last of them, the newest first."""
    calls = sorted(_ended_calls(trace), key=lambda call: call.ended_ns)
    found, before = [], None
    for call in calls:
        if before is not None and call.allocated_bytes > before:
            found.append(call._replace(growth_bytes=call.allocated_bytes - before))
        before = call.allocated_bytes
    return found[: -MOST_EVENTS - 1 : -1]


def _ended_calls(trace: RingWriter) -> list[Growth]:
    """The newest calls that have ended, each with a sample of the memory."""
    newest = trace.newest_word()
    unpack = trace.layout.open_struct.unpack_from
    names = [field.column.name for field in (*trace.layout.opening, *trace.layout.closing)]
    found = []
    for word in range(max(4, newest - 4 * _LOOKS_AT), newest + 1, 4):
        at = trace.offset_of(word)
        if MARKER.unpack_from(trace.buffer, at)[0] != word:
            continue  # overwritten since
        _, *values, end = unpack(trace.buffer, at)
        row = dict(zip(names, values, strict=True))
        is_over = end in (word + DONE, word + FAILED) and row["duration_ns"] != NULL_INT
        if is_over and row["stage"] != _STEP and row["allocated_bytes"] != NULL_INT:
            ended = row["start_ns"] + row["duration_ns"]
            size = row["allocated_bytes"]
            found.append(Growth(row["step"], row["module"], row["stage"], 0, size, ended))
    return found
