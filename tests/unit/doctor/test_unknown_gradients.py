"""What rules say of parameters whose gradients could not be read: nothing, and that it is so."""

from __future__ import annotations

from typing import Any

import pytest

from probing.diagnosis.doctor.not_looked_at import NotLookedAt

from .failing_cases import estimated
from .made import facts, signs, steps
from .records import experts, parameters

pytestmark = pytest.mark.anypython

_ALONE = {"optimizers": 0, "optimizer": None, "has_state": None}
_UNTRAINED: dict[str, Any] = {"has_state": False, "version": 2}
_OTHERS = {"model": None, "has_state": False}


@pytest.mark.parametrize(
    ("rule", "row", "last"),
    [
        ("no-optimizer", {**_ALONE, "version": 2}, {}),
        ("no-optimizer", {**_ALONE, "version": 1, "has_gradient": True}, _OTHERS),
        ("never-a-gradient", _UNTRAINED, {}),
    ],
)
def test_what_is_not_known_is_no_finding_and_is_told(
    rule: str, row: dict[str, Any], last: dict[str, Any]
) -> None:
    """Neither a parameter that may have a gradient nor one that may have none is blamed."""
    unread = {"has_gradient": None}
    made = parameters({**unread, **row}, last={**last, **unread})
    with pytest.raises(NotLookedAt, match=r"a gradient is not known: no step has ended"):
        signs(rule, made())


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("no-optimizer", {}),  # all are in an optimizer
        ("no-optimizer", {**_ALONE, "trainable": False}),  # a frozen teacher
        ("no-optimizer", {**_ALONE, "model": "teacher"}),  # nothing of it is trained
        ("no-optimizer", {**_ALONE, "version": 4012}),  # a multiplier, changed by hand
        ("no-optimizer", {**_ALONE, "model": None}),  # of no model
        ("never-a-gradient", {}),  # all have been changed
        ("never-a-gradient", {"has_state": False, "version": 50}),  # SGD keeps no state
        ("never-a-gradient", {**_UNTRAINED, "trainable": False}),
        ("never-a-gradient", {**_UNTRAINED, "has_state": True}),
        ("never-a-gradient", {**_UNTRAINED, "optimizers": 2}),
    ],
)
def test_what_gradients_do_not_decide_is_judged_without_them(
    rule: str, row: dict[str, Any]
) -> None:
    """Of a healthy training nobody is told that a rule could not be judged."""
    made = parameters({"has_gradient": None, **row}, last={"has_gradient": None})
    assert signs(rule, made()) == []


def test_what_is_known_is_told_beside_what_is_not() -> None:
    """One parameter that could not be read hides none that could."""
    known = {**_ALONE, "version": 2, "parameter": "known.weight"}
    made = parameters(known, {**_ALONE, "version": 2, "has_gradient": None})
    (sign,) = signs("no-optimizer", made())
    assert "1 parameters" in sign.summary
    assert "known.weight" in sign.summary


def test_experts_that_could_not_be_read_are_not_called_untrained() -> None:
    """Nothing may have been routed to them, or their gradients may be there."""
    of = experts(called=[0, 1], learns=[0, 1])
    rows = [{**row, "has_gradient": None} for row in of.live("parameters")]
    unread = facts({"steps": steps(60)}, {"parameters": rows})
    with pytest.raises(NotLookedAt, match=r"experts\.2\.weight has a gradient"):
        signs("never-a-gradient", unread)


def test_gradients_that_may_be_there_may_have_been_estimated() -> None:
    """Steps without a backward pass are only possibly wrong then."""
    (unread,) = signs("no-backward", estimated(has_gradient=None))
    (none,) = signs("no-backward", estimated(has_gradient=False))
    assert (unread.certainty, none.certainty) == ("possible", "likely")


def test_an_ended_process_tells_nothing_of_its_gradients() -> None:
    """It cannot be asked any more, and may have been of those that estimate them."""
    (sign,) = signs("no-backward", estimated(has_gradient=False, is_alive=False))
    assert sign.certainty == "possible"
