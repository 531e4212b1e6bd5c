"""The pending and running evals, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import duration
from ..table import columns, render_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....messages.about.eval import EvalJob


def render_jobs(jobs: Sequence[EvalJob]) -> str:
    """The pending and running evals."""
    if not jobs:
        return "no eval is pending or running"
    headings = columns(">id", "who", "state", "for", "where", "at", "code")
    rows = [
        [
            str(job.number),
            job.who,
            job.state,
            duration(job.age_s),
            job.where,
            job.place,
            job.code.strip().replace("\n", " ; "),
        ]
        for job in jobs
    ]
    return render_table(headings, rows, width=None, color=False)
