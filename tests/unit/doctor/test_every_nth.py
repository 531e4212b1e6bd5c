"""Steps that take far longer at regular intervals, as those with an evaluation in them do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probing.diagnosis.doctor import effects
from probing.diagnosis.doctor.findings import Sign, finding_of
from probing.diagnosis.doctor.rules import RULES

from .made import facts, signs, steps
from .records import trace

pytestmark = pytest.mark.anypython


def _each(number: int, long: float, *, first: int = 0) -> Callable[[int], float]:
    """How much longer some steps are."""
    return lambda step: long if step >= first and step % number == 0 else 0.0


def _found(longer: Callable[[int], float], phase: str = "forward_s", **columns: Any) -> list[Sign]:
    """What the rule finds in 400 steps of 10 ms, some of them longer in one phase."""
    made = steps(
        400,
        **{
            "duration": lambda s: 0.01 + 0.001 * (s % 7) / 7 + longer(s),
            "forward_s": 0.004,
            "backward_s": 0.004,
            "optimizer_s": 0.002,
            phase: lambda s: 0.004 + longer(s),
            **columns,
        },
    )
    return signs("every-nth-step", facts({"steps": made}))


def test_what_comes_every_few_steps_and_takes_most_of_the_time_is_told() -> None:
    """With the interval, how much longer they are, and in which phase."""
    (sign,) = _found(_each(10, 0.16))
    assert sign.certainty == "possible"
    assert sign.summary.startswith("Every 10th step takes 16.")
    assert "60 % of the time" in sign.summary
    assert sign.evidence == (
        "39 of the last 397 steps",
        "100 % of the difference is in forward_s: the forward pass",
    )
    assert "3rd step" in _found(_each(3, 0.05))[0].summary
    assert "21st step" in _found(_each(21, 0.5))[0].summary


@pytest.mark.parametrize(
    ("longer", "phase", "columns"),
    [
        (_each(10, 0.05), "other_s", {}),  # a log, a checkpoint: a third of the time
        (_each(200, 9.0), "other_s", {}),  # too few to tell
        (_each(2, 0.1), "forward_s", {}),  # two tasks in turn
        (_each(10, 0.16), "data_wait_s", {}),  # a loader whose workers come together
        (_each(10, 0.16), "forward_s", {"samples": lambda s: 80 if s % 10 == 0 else 8}),
        (lambda s: 0.16 if (s * s * 7 + s // 3) % 11 == 0 else 0.0, "forward_s", {}),  # no interval
        (lambda s: 0.06 * ((37 * s) % 29) / 29, "forward_s", {}),  # varying lengths
    ],
)
def test_what_healthy_trainings_do_now_and_then_is_not_told(
    longer: Callable[[int], float], phase: str, columns: dict[str, Any]
) -> None:
    """What takes little, comes by chance, waits, or has larger batches."""
    assert _found(longer, phase, **columns) == []


def test_evaluations_that_are_not_on_record_are_not_called_healthy() -> None:
    """Calls in evaluation mode in the long steps: of parts of the model, as they are no roots."""
    made = steps(400, duration=lambda s: 0.01 + _each(10, 0.16)(s))
    calls = trace(*({"step": s, "module": "ut", "training": False} for s in range(0, 400, 10)))
    (sign,) = signs("every-nth-step", facts({"steps": made, "torch_trace": calls}))
    assert "called in evaluation mode" in sign.summary
    assert sign.fix.startswith("Evaluate less often")
    rule = next(rule for rule in RULES if rule.name == "every-nth-step")
    assert effects.contradicted([finding_of(rule, sign, asked="1")]) == {"evaluations"}
