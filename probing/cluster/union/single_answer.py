"""The life of a process that answers one statement over many processes.

Rules of this file: a process of its own for each statement, since SQL is never run in a server.
What is asked comes on stdin; an Arrow stream goes to stdout, or the error, with exit code 1. The
server ends it when its time is over.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pyarrow as pa

from ...errors import InternalError, ProbingError, SqlTooLarge
from ...messages import common as wire

_NICE = 5
_STACK_BYTES = 1 << 20
"""Of a thread that asks: the kernel counts the whole of it as held."""


def answer_once(rows_of: Callable[[bytes], pa.Table], *, too_large: str) -> int:
    """Answer what stdin asks; returns the exit code, 1 where the answer is an error.

    Args:
        rows_of: The rows; limits the memory of this process first. Its errors are answers.
        too_large: What to say where these need more.
    """
    os.nice(_NICE)
    threading.stack_size(_STACK_BYTES)
    try:
        rows = rows_of(sys.stdin.buffer.read())
    except ProbingError as error:
        return _complain(error)
    except MemoryError:  # Arrow's is one, too
        return _complain(SqlTooLarge(too_large))
    except pa.ArrowException as error:
        return _complain(InternalError(f"{type(error).__name__}: {error}"))
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as writer:
        writer.write_table(rows)
    sys.stdout.buffer.flush()
    return 0


def _complain(error: ProbingError) -> int:
    sys.stdout.buffer.write(wire.encode_error(error))
    return 1
