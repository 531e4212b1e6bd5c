"""Answers one request of a node server: a statement over the rings of its machine's ranks.

Rules of this file: a process of its own for each request, as SQL is never run in a server: the
request comes on stdin, the answer goes to stdout, the server ends it when its time is over.
"""

from __future__ import annotations

import os
import sys
import threading

import pyarrow as pa

from ...errors import InternalError, ProbingError, SqlTooLarge
from ...linux.limited_memory import limit_memory
from ...messages import common as wire
from ...messages.about.union import UnionRequest
from ...rundir.folders import from_env
from ...settings import Settings
from .node_answer import answer

_NICE = 5
_TIMES_A_QUERY = 4
"""What it may hold, by what the query of one process may: the rows of all its ranks meet in it."""
_STACK_BYTES = 1 << 20
"""Of a thread that asks: the kernel counts the whole of it as held."""


def main() -> int:
    """Answer; returns the exit code, 1 where the answer is an error."""
    os.nice(_NICE)
    threading.stack_size(_STACK_BYTES)
    try:
        limit_memory(_TIMES_A_QUERY * Settings.from_env(os.environ).query_memory_mib)
        rows = answer(wire.decode(UnionRequest, sys.stdin.buffer.read()), from_env())
    except ProbingError as error:
        sys.stdout.buffer.write(wire.encode_error(error))
        return 1
    except MemoryError:  # Arrow's is one, too
        too_large = SqlTooLarge("the rows of its ranks need too much memory on that machine")
        sys.stdout.buffer.write(wire.encode_error(too_large))
        return 1
    except pa.ArrowException as error:
        sys.stdout.buffer.write(
            wire.encode_error(InternalError(f"{type(error).__name__}: {error}"))
        )
        return 1
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as writer:
        writer.write_table(rows)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
