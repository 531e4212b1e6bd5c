"""The live tables of models as `summary` shows them.

Rules of this file: pure functions of answers, but for the one that asks; what an agent of another
version leaves out is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..messages.common import LiveRows
from ..messages.frozen import InNotebooks, dataclass
from ..messages.limits import WAIT_S

if TYPE_CHECKING:
    from ..client.base import Process

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One root module.

    Attributes:
        facts: Its row in python.models.
        modules: The rows of its modules in python.modules, those that are to be shown.
        hidden: How many lie deeper.
        leaf_output_bytes: What its innermost modules returned in the observed call, all together;
            None when none was observed.
    """

    facts: Row
    modules: tuple[Row, ...]
    hidden: int
    leaf_output_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(InNotebooks):
    """All models of a process, and what the reader should know about how they were seen."""

    models: tuple[Model, ...]
    notes: tuple[str, ...]


def ask_for_summary(process: Process, *, depth: int, timeout_s: float | None = None) -> Summary:
    """Ask a process for its models, as they are once their next call has been seen.

    Args:
        depth: How many levels below the root are shown.
        timeout_s: How long that call may be waited for, also while the training makes no progress.

    Raises:
        ProbingError: The process does not answer.
    """
    modules = process.live(
        "modules",
        wait_s=WAIT_S if timeout_s is None else timeout_s,
        patient=timeout_s is not None,
    )
    return summary_of(process.live("models"), modules, depth=depth)


def summary_of(models: LiveRows, modules: LiveRows, *, depth: int) -> Summary:
    """The models with their modules.

    Args:
        depth: How many levels below the root are shown.
    """
    rows = modules.dicts()
    found = tuple(
        _model(facts, [row for row in rows if row["model_id"] == facts["model_id"]], depth)
        for facts in models.dicts()
    )
    notes = dict.fromkeys(note for note in (modules.note, models.note) if note is not None)
    return Summary(models=found, notes=tuple(notes))


def plain_summary(summary: Summary) -> Any:
    """The summary as JSON can hold it."""
    return {
        "models": [
            {**model.facts, "modules_shown": list(model.modules)} for model in summary.models
        ],
        "notes": list(summary.notes),
    }


def _model(facts: Row, rows: list[Row], depth: int) -> Model:
    shown = tuple(row for row in rows if (row["depth"] or 0) <= depth)
    return Model(
        facts=facts,
        modules=shown,
        hidden=len(rows) - len(shown),
        leaf_output_bytes=_leaf_output_bytes(rows),
    )


def _leaf_output_bytes(rows: list[Row]) -> int | None:
    """What the innermost of the called modules returned; a module's last call stands for all."""
    sizes = [
        row["output_bytes"] * row["calls"]
        for row, following in zip(rows, [*rows[1:], None], strict=True)
        if row.get("calls") and row.get("output_bytes") is not None
        and (following is None or following["depth"] <= row["depth"])
    ]  # fmt: skip
    return sum(sizes) if sizes else None
