"""The life of a process that answers one statement over many processes.

Rules of this file: a process of its own for each statement, since SQL is never run in a server.
What is asked comes on stdin; an Arrow stream goes to stdout, or the error, with exit code 1. The
server ends it when its time is over.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pyarrow as pa

from ...errors import InternalError, ProbingError, SqlTooLarge
from ...messages import common as wire
from ...server.sql_worker.courtesy import Courtesy, stand_near

_STACK_BYTES = 1 << 20
"""Of a thread that asks: the kernel counts the whole of it as held."""


def answer_once(rows_of: Callable[[bytes], pa.Table], *, too_large: str) -> int:
    """Answer what stdin asks; returns the exit code, 1 where the answer is an error.

    It stands near trainings at first, and far behind them once it takes long.

    Args:
        rows_of: The rows; limits the memory of this process first. Its errors are answers.
        too_large: What to say where these need more.
    """
    stand_near()
    codes: list[int] = []
    Courtesy().run(lambda: codes.append(_answer(rows_of, too_large)))
    return codes[0]


def _answer(rows_of: Callable[[bytes], pa.Table], too_large: str) -> int:
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
