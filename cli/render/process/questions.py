"""The saved questions, with what each answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..table import Heading, columns, render_table

if TYPE_CHECKING:
    from ....plugins import Question


def render_questions(questions: Sequence[Question], *, width: int | None, color: bool) -> str:
    """One line per question."""
    headings = columns("=question", Heading(name="what it answers", least=30), "parameters")
    rows = [
        [
            f"@{question.name}",
            question.doc,
            ", ".join(f"{name}={value}" for name, value in question.parameters.items()),
        ]
        for question in questions
    ]
    return render_table(headings, rows, width=width, color=color)
