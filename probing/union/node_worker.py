"""Answers one request of a node server: a statement over the rings of its machine's ranks.

Rules of this file: a process of its own for each request, as SQL is never run in a server: the
request comes on stdin, the answer goes to stdout, the server ends it when its time is over. With
the argument ``tree`` the request is one over several machines.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pyarrow as pa

from .. import wire
from ..errors import InternalError, ProbingError
from ..rundir import RunDirectory, from_env
from ..tree_wire import TreeWork
from ..union_wire import UnionRequest
from .inner_node import answer_tree
from .node_answer import answer

TREE = "tree"
_NICE = 5
_ADDRESS_SPACE = 16 << 30


def main() -> int:
    """Answer; returns the exit code, 1 where the answer is an error."""
    os.nice(_NICE)
    Path("/proc/self/oom_score_adj").write_text("1000")  # rather this one than a training
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    try:
        rows = _answer(sys.stdin.buffer.read(), from_env())
    except ProbingError as error:
        sys.stdout.buffer.write(wire.encode_error(error))
        return 1
    except (pa.ArrowException, MemoryError) as error:
        sys.stdout.buffer.write(
            wire.encode_error(InternalError(f"{type(error).__name__}: {error}"))
        )
        return 1
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as writer:
        writer.write_table(rows)
    sys.stdout.buffer.flush()
    return 0


def _answer(data: bytes, directory: RunDirectory) -> pa.Table:
    """The rows of a request of either kind."""
    if TREE in sys.argv[1:]:
        return answer_tree(wire.decode(TreeWork, data), directory)
    return answer(wire.decode(UnionRequest, data), directory)


if __name__ == "__main__":
    sys.exit(main())
