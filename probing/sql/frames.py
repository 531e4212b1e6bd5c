"""What passes between the agent and its SQL worker, over two pipes.

Rules of this file: bytes and what they mean; no I/O, and nothing imported that the training
process must not load. A frame is a 32-bit length and that many bytes. The worker says `READY`
once; then, for every request frame, it sends a status frame (`OK`, or an error body of
`probing.messages.common`) and after `OK` the Arrow IPC stream in frames, ended by an empty one.
"""

from __future__ import annotations

import struct

from ..messages.frozen import dataclass

LENGTH = struct.Struct("<I")
READY = b"ready"
OK = b"ok"
NO_FOLDER = "-"
"""In place of a run folder: every request names its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """One statement for the worker; travels by `wire.encode`.

    Attributes:
        timeout_s: What it may take, everything included.
        max_rows: Where to cut the answer.
        max_bytes: Where to cut the answer, in bytes of Arrow data.
        memory_mib: What the process may hold.
        max_sql_bytes: How long the statement may be.
        folder: The run folder whose tables are asked; empty for the worker's own.
    """

    sql: str
    timeout_s: float
    max_rows: int
    max_bytes: int
    memory_mib: int
    max_sql_bytes: int
    folder: str = ""


def encode_frame(data: bytes | memoryview) -> bytes:
    """A frame that holds these bytes."""
    return LENGTH.pack(len(data)) + data
