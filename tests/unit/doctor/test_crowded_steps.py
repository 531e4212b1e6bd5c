"""Whether longer steps are the program's own where other programs take its processors."""

from __future__ import annotations

from typing import Any

import pytest

from .made import facts as made_facts, signs, steps
from .records import after

pytestmark = pytest.mark.anypython

_LONGER = {
    "duration": after(120, 0.06, 0.5),
    "forward_s": after(120, 0.02, 0.2),
    "backward_s": after(120, 0.03, 0.22),
    "optimizer_s": after(120, 0.01, 0.03),
}
"""Steps that take eight times as long, most of it in the model, as others' work makes them."""


def _of(**columns: Any) -> list[tuple[str, bool]]:
    """How sure the rule is of steps that take longer, and whether it lays that on others."""
    made = made_facts({"steps": steps(200, **{**_LONGER, **columns})})
    made.__dict__["crowd"] = ""
    found = signs("slower-since", made)
    return [(sign.certainty, "other programs use its cores" in sign.summary) for sign in found]


@pytest.mark.parametrize(
    ("used", "preempted", "found"),
    [
        (after(120, 0.06, 0.24), after(120, 1, 90), ("possible", True)),  # threads that spin
        (after(120, 0.02, 0.2), after(120, 8, 90), ("possible", True)),  # crowded all the time
        (after(120, 0.06, 0.5), after(120, 1, 4), ("likely", False)),  # a quiet machine
        (after(120, 0.06, 0.5), after(120, 4, 60), ("likely", False)),  # others wait for it
        (after(120, 0.06, 0.24), None, ("likely", False)),  # not on record
        (after(120, 0.06, after(140, 0.5, 0.3)), after(140, 1, 90), ("likely", False)),  # at last
    ],
)
def test_processor_time_of_crowded_steps_is_no_evidence(
    used: Any, preempted: Any, found: tuple[str, bool]
) -> None:
    """It grows with others' work, too; it counts in the steps in which the thread is left alone."""
    assert _of(cpu_s=used, involuntary_switches=preempted) == [found]


def test_what_is_longer_in_all_alike_is_not_surely_its_own() -> None:
    """The model and the updates of its weights by one factor: as on a processor that is slower."""
    alike = {"optimizer_s": after(120, 0.01, 0.08), "cpu_s": after(120, 0.06, 0.5)}
    assert _of(**alike) == [("possible", False)]
    assert _of(**alike | {"optimizer_s": 0.01}) == [("likely", False)]


def _grown(by: float, *, at: float = 0.1) -> Any:
    """What is longer with each step, and by so much at the last."""
    return lambda step: at * (1 + by * step / 600)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"cpu_s": _grown(0.6), "forward_s": _grown(0.6, at=0.08)}, "possible"),
        ({"cpu_s": _grown(1.6), "forward_s": _grown(1.6, at=0.08)}, "possible"),
        (
            {
                "cpu_s": lambda s: 0.1 * (1 + 0.6 * s / 600) + 0.2 * (s % 2),
                "involuntary_switches": lambda s: 40 * (s % 2),
                "other_s": _grown(0.6),
            },
            "possible",  # every second step is left alone
        ),
        ({"cpu_s": _grown(0.2), "forward_s": _grown(0.2, at=0.08)}, None),
        ({"cpu_s": lambda s: 0.1 + 0.05 * ((7 * s) % 11 > 5)}, None),  # as others come and go
        (
            {
                "cpu_s": _grown(0.6),
                "forward_s": _grown(0.6, at=0.08),
                "involuntary_switches": _grown(3.0, at=20),
            },
            None,  # others have more and more of its processors
        ),
        (
            {
                "cpu_s": _grown(0.6),
                "forward_s": _grown(0.6, at=0.04),
                "backward_s": _grown(0.6, at=0.04),
                "optimizer_s": _grown(0.6, at=0.02),
            },
            None,  # all alike, as on a processor that gets slower
        ),
        ({"cpu_s": None, "other_s": _grown(0.6)}, None),
    ],
)
def test_its_own_growth_is_told_from_that_of_others(
    columns: dict[str, Any], says: str | None
) -> None:
    """By processor time, since what others take makes steps longer by chance."""
    made = made_facts(
        {
            "steps": steps(
                600,
                **{
                    "duration": lambda s: 0.2 + 0.4 * ((7 * s) % 11 > 5),
                    "involuntary_switches": lambda s: 30 + (3 * s) % 5,
                    **columns,
                },
            )
        }
    )
    made.__dict__["crowd"] = "others use the machine"
    found = signs("slower-and-slower", made)
    assert [sign.certainty for sign in found] == ([] if says is None else [says])
    assert all("in processor time" in sign.evidence[0] for sign in found)
