"""A loss that is not finite in a step that a gradient scaler never lets end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from probing.cli.questions.library import QUESTIONS

from .made import Facts, facts, signs, steps

pytestmark = pytest.mark.anypython

_NAN = math.nan
_OPEN = {"step": 150, "start_ns": 1_000_000_000 * 160, "duration": None}


def _open_step(losses: Sequence[float | None], each: int = 1, **columns: Any) -> Facts:
    """Steps that have ended, and one in progress whose micro-batches have these losses."""
    made = [*steps(150, micro_batches=each, **{"amp_scale": 65536.0, **columns}), _OPEN]
    batches = [
        {"step": 150, "micro_batch": n, "loss": loss, "backward_s": 0.01, "start_ns": n}
        for n, loss in enumerate(losses)
    ]
    return facts({"steps": made, "micro_batches": batches})


@pytest.mark.parametrize(
    ("losses", "each", "columns", "words"),
    [
        ([_NAN] * 100, 1, {}, "The loss has been NaN since step 150, in 100 micro-batches in a row,"
         " and the gradient scaler has left out each step since then"),
        ([2.0, *[_NAN] * 99], 4, {}, "NaN since step 150, in 99 micro-batches"),
        ([math.inf] * 9, 1, {}, "The loss has been infinite since step 150"),
        ([_NAN] * 9, 1, {"amp_scale": None}, "and no optimizer has stepped since then"),
        ([_NAN] * 9 + [None] * 90, 1, {}, "in 99 micro-batches"),  # under a scale of 0
        ([_NAN] * 2, 1, {}, ""),  # a bad batch or two
        ([_NAN] * 11, 4, {}, ""),
        ([*[_NAN] * 99, 2.0], 1, {}, ""),  # it has come back
        ([2.0] * 99, 1, {}, ""),
    ],
)  # fmt: skip
def test_losses_of_a_step_that_does_not_end_count(
    losses: list[float | None], each: int, columns: dict[str, Any], words: str
) -> None:
    """As many in a row as three steps have, with none that is finite after them."""
    found = signs("loss-not-finite", _open_step(losses, each, **columns))
    assert [sign.since_step for sign in found] == [150] * bool(words)
    assert all(words in sign.summary and sign.certainty == "certain" for sign in found)


def test_that_no_optimizer_steps_is_told_as_what_comes_of_it() -> None:
    """What keeps the optimizer is the loss, and not a condition of the script."""
    (sign,) = signs("never-steps", _open_step([_NAN] * 100))
    assert "since step 149" in sign.summary
    assert "because the loss is not finite: a gradient scaler leaves out such steps" in sign.summary
    assert sign.caused_by == "loss-not-finite"
    assert "condition" not in sign.fix
    (other,) = signs("never-steps", _open_step([2.0] * 100))
    assert not other.caused_by


def test_the_saved_question_has_the_step_in_progress() -> None:
    """Its loss is that of the first bad micro-batch, and it says how many there are."""
    question = next(one for one in QUESTIONS if one.name == "not-finite")
    sql = question.sql.replace("$count", question.parameters["count"])
    sql = sql.replace("host, pid, step", "step")  # one process alone is asked here
    (row,) = _open_step([2.0, *[_NAN] * 99]).rows(sql)
    assert (row["step"], row["bad_micro_batches"]) == (150, 99)
    assert math.isnan(row["loss"])
    assert _open_step([2.0] * 9).rows(sql) == []
