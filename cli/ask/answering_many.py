"""The answer to a query over many processes.

Rules of this file: as `answering`; the rows of all processes are one database. Who did not answer
is told on stderr, and the rows of the others are the answer; the exit code is that of the first
failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from ...cluster.job.outcomes import Coverage, Outcome
from ...cluster.union.budget import DEFAULT_BUDGET_MIB
from ...cluster.union.query import Union, UnionAnswer
from ...errors import Unreachable
from ..output import terminal
from ..render.ranks.coverage import render_coverage
from ..render.ranks.union import render_moved, render_plan
from ..target import Target
from .many import membership_of
from .ranks import failures


def answer_many(
    target: Target,
    sql: str,
    write: Callable[[pa.Schema, Iterator[pa.RecordBatch]], None],
    *,
    max_rows: int | None,
    budget_mib: float | None,
) -> int:
    """Ask all processes and write one answer.

    Args:
        budget_mib: What they may send together; None for the default.

    Returns:
        The exit code.

    Raises:
        ProbingError: The statement cannot be run, or its answer cannot be written.
    """
    budget = DEFAULT_BUDGET_MIB if budget_mib is None else budget_mib
    ranks = Union(membership_of(target).members, budget_mib=budget, token=target.token)
    answer = ranks.query(sql, timeout_s=target.limit_s, max_rows=max_rows)
    if any(outcome.state == "answered" for outcome in answer.outcomes) or not answer.outcomes:
        with answer.answer:
            write(answer.answer.schema, answer.answer.batches())
    return _tell(answer)


def explain_many(sql: str) -> str:
    """What the processes would be asked, and what would run over their answers.

    Raises:
        ProbingError: The statement cannot be run.
    """
    return render_plan(Union(()).explain(sql))


def _tell(answer: UnionAnswer) -> int:
    """Put what there is to know about an answer on stderr; returns the exit code."""
    terminal.note(*answer.notes)
    if answer.answer.truncated:
        terminal.note(answer.answer.truncated)
    if not answer.outcomes:  # it reads no table
        return 0
    is_over = not any(outcome.state == "answered" for outcome in answer.outcomes)
    # Who is late or dead, the footer tells, unless nobody answered at all.
    told = [each for each in answer.outcomes if is_over or each.state == "failed"]
    for names, error in failures(told):
        terminal.complain(error, endpoint=names)
    moved = render_moved(rows=answer.moved_rows, size=answer.moved_bytes)
    terminal.tell(render_coverage(Coverage.of(answer.outcomes), moved=moved))
    return _exit_code(answer.outcomes)


def _exit_code(outcomes: Sequence[Outcome[Any]]) -> int:
    """That of the first failure; a rank that was expected and not seen cannot be reached."""
    for outcome in outcomes:
        if outcome.error is not None:
            return outcome.error.exit_code
        if outcome.state == "missing":
            return Unreachable.exit_code
    return 0
