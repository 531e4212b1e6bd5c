"""Answers one statement of the page over the ranks of a job.

Rules of this file: a process of its own for each statement, since SQL is never run in a server.
What is asked comes on stdin as JSON; an Arrow stream goes to stdout, with what there is to say of
it in the schema's metadata, or the error, with exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import pyarrow as pa

from ..cli.ask.ranks import failures
from ..cluster.job.membership import Member
from ..cluster.union.query import Union, UnionAnswer
from ..errors import InternalError, ProbingError, SqlTooLarge
from ..linux.limited_memory import limit_memory
from ..messages import common as wire

_NICE = 5
_STACK_BYTES = 1 << 20
"""Of a thread that asks: the kernel counts the whole of it as held."""


def main() -> int:
    """Answer; returns the exit code, 1 where the answer is an error."""
    os.nice(_NICE)
    threading.stack_size(_STACK_BYTES)
    try:
        asked = json.load(sys.stdin)
        limit_memory(asked["memory_mib"])
        rows = _answer(asked)
    except ProbingError as error:
        return _complain(error)
    except MemoryError:  # Arrow's is one, too
        return _complain(SqlTooLarge("the rows of the ranks need too much memory"))
    except pa.ArrowException as error:
        return _complain(InternalError(f"{type(error).__name__}: {error}"))
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as writer:
        writer.write_table(rows)
    sys.stdout.buffer.flush()
    return 0


def _answer(asked: dict[str, Any]) -> pa.Table:
    """The rows of all.

    Raises:
        ProbingError: The statement cannot be run, or nobody has answered.
    """
    union = Union([Member(**one) for one in asked["members"]], token=asked["token"])
    answer = union.query(asked["sql"], timeout_s=asked["timeout_s"], max_rows=asked["max_rows"])
    rows = answer.to_arrow()
    errors = [outcome.error for outcome in answer.outcomes if outcome.error is not None]
    if errors and not any(outcome.state == "answered" for outcome in answer.outcomes):
        raise errors[0]
    told = {wire.NOTES_KEY: json.dumps(_notes(answer)).encode()}
    if answer.answer.truncated:
        told[wire.TRUNCATED_KEY] = answer.answer.truncated.encode()
    return rows.replace_schema_metadata(told)


def _notes(answer: UnionAnswer) -> list[str]:
    """Who answered, who did not and why, and what is to be known of the answer."""
    failed = [f"{names}: {error.message}" for names, error in failures(answer.outcomes)]
    words = [answer.coverage.words()] if answer.outcomes else []
    return [*words, *failed, *answer.notes]


def _complain(error: ProbingError) -> int:
    sys.stdout.buffer.write(wire.encode_error(error))
    return 1


if __name__ == "__main__":
    sys.exit(main())
