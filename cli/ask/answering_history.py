"""The answer to a query over a history: to stdout or a file.

Rules of this file: as of `answering`, which writes the rows.
"""

from __future__ import annotations

from ...history.query import History
from ..time_limit import within
from .answering import Question, write_rows

_GRACE_S = 2.0


def answer_history(place: str, question: Question, *, timeout_s: float) -> list[str]:
    """Ask, and write the rows.

    Args:
        place: The folder of the history.

    Returns:
        What was left out, and why.

    Raises:
        ProbingError: There is no answer, or it cannot be written.
    """
    history = History(place)
    with within(timeout_s, grace_s=_GRACE_S):
        asked = history.query(question.sql, timeout_s=timeout_s, max_rows=question.limit)
        with asked as answer:
            write_rows(answer.schema, answer.batches(), question)
            if answer.truncated:
                history.notes.append(answer.truncated)
    return history.notes
