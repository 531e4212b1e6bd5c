"""One cell of the table: what was said of a training, beside what is true."""

from __future__ import annotations

import dataclasses
from typing import Literal

Outcome = Literal["right", "wrong", "declined", "not asked"]

# The columns of the table, in the order in which a person would ask.
COLUMNS = (
    "runs",
    "identical",
    "steps",
    "loss",
    "phases",
    "names",
    "rates",
    "norm",
    "samples",
    "attach",
    "number",
    "memory",
    "doctor",
    "fit",
    "gradients",
    "profile",
    "act lr",
    "undo",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One answer.

    Attributes:
        column: Which question it was.
        outcome: Whether the answer was right; declined, where it says itself why there is none.
        said: What was said, where that was wrong.
        true: What is true, where something else was said.
    """

    column: str
    outcome: Outcome
    said: str = ""
    true: str = ""


def right(column: str) -> Cell:
    """Make the cell of an answer that is true."""
    return Cell(column=column, outcome="right")


def wrong(column: str, said: str, true: str) -> Cell:
    """Make the cell of an answer that is not."""
    return Cell(column=column, outcome="wrong", said=said, true=true)


def declined(column: str) -> Cell:
    """Make the cell of a question that is not answered, with the reason."""
    return Cell(column=column, outcome="declined")


def not_asked(column: str) -> Cell:
    """Make the cell of a question that the script gives no reason for."""
    return Cell(column=column, outcome="not asked")
