"""Answers one statement of the page over the ranks of a job.

Rules of this file: those of `cluster.union.single_answer`. What is asked comes as JSON; what there
is to say of the answer is in the schema's metadata.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa

from ..cli.ask.ranks import failures
from ..cluster.job.membership import Member
from ..cluster.job.outcomes import why_nobody
from ..cluster.union.query import Union, UnionAnswer
from ..cluster.union.single_answer import answer_once
from ..linux.limited_memory import limit_memory
from ..messages import common as wire


def _rows_of(question: bytes) -> pa.Table:
    """The rows of all.

    Raises:
        ProbingError: The statement cannot be run, or nobody has answered.
    """
    asked: dict[str, Any] = json.loads(question)
    limit_memory(asked["memory_mib"])
    union = Union([Member(**one) for one in asked["members"]], token=asked["token"])
    answer = union.query(asked["sql"], timeout_s=asked["timeout_s"], max_rows=asked["max_rows"])
    rows = answer.to_arrow()
    if (lost := why_nobody(answer.outcomes)) is not None:
        raise lost
    told = {wire.NOTES_KEY: json.dumps(_notes(answer)).encode()}
    if answer.answer.truncated:
        told[wire.TRUNCATED_KEY] = answer.answer.truncated.encode()
    return rows.replace_schema_metadata(told)


def _notes(answer: UnionAnswer) -> list[str]:
    """Who answered, who did not and why, and what is to be known of the answer."""
    failed = [f"{names}: {error.message}" for names, error in failures(answer.outcomes)]
    words = [answer.coverage.words()] if answer.outcomes else []
    return [*words, *failed, *answer.notes]


if __name__ == "__main__":
    sys.exit(answer_once(_rows_of, too_large="the rows of the ranks need too much memory"))
