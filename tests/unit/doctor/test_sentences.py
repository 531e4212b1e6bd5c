"""Sentences of findings that say what is so, to who has not read the rule."""

from __future__ import annotations

import pytest

from probing.diagnosis.doctor import effects
from probing.diagnosis.doctor.findings import Sign, finding_of
from probing.diagnosis.doctor.rules import RULES
from probing.diagnosis.doctor.rules.memory.growth import _leak_words
from probing.diagnosis.doctor.rules.numbers.modes import _behave
from probing.diagnosis.doctor.rules.trained.parameters import _versions
from probing.diagnosis.hang.evidence import Verdict
from probing.diagnosis.hang.words.texts import UNASKED
from probing.diagnosis.leaks.mistakes import Finding
from probing.diagnosis.leaks.series import Trend

from .made import facts, signs, steps
from .records import after, of_steps

pytestmark = pytest.mark.anypython


def test_a_rate_that_goes_on_falling_is_told_as_what_it_is_now() -> None:
    """It has not been today's value since the step at which it was next to nothing."""
    falls = of_steps(lr=after(60, 0.005, lambda s: 5e-9 * 0.1 ** ((s - 60) // 10)))
    (sign,) = signs("rate-zero", falls())
    assert sign.summary == (
        "The learning rate has been 5e-9 or less since step 60, is 5e-22 now,"
        " and was 0.005 at most before: nothing is learned any more"
    )
    (sign,) = signs("rate-zero", of_steps(lr=after(60, 0.005, 0.0))())
    assert sign.summary.startswith("The learning rate has been zero since step 60, and was 0.005")


def test_what_cannot_be_judged_without_weights_is_not_called_healthy() -> None:
    """Where the weights are lost, nothing is to be said of gradients and parameters."""
    rule = next(rule for rule in RULES if rule.name == "loss-not-finite")

    def ill(clause: str) -> frozenset[str]:
        sign = Sign(certainty="certain", summary=f"The loss has been NaN since step 9{clause}")
        return effects.contradicted([finding_of(rule, sign, asked="1")])

    assert ill("; the weights are lost") == {
        "gradients", "numbers", "parameters", "running statistics",
    }  # fmt: skip
    assert ill("; it comes with what Net is given: the data") == frozenset()


@pytest.mark.parametrize(
    ("mistake", "grown", "words"),
    [
        ("graph", 160_000, "their tensors are 16 B a step; the graphs themselves"),
        ("graph", 20, "autograd graphs are kept alive: 16 B a step"),
        ("tensors", 160_000, "tensors are kept: 16 B a step"),
    ],
)
def test_graphs_of_small_tensors_take_more_than_those(mistake: str, grown: int, words: str) -> None:
    """What is counted of a graph that is kept is its tensors, and memory grows by its nodes."""
    kept = Finding(
        mistake=mistake, is_leak=True, rows=(), evidence="", instead="", bytes_per_step=16.0
    )
    (told,) = _leak_words([kept], Trend(kind="slope", steps=99, slope=float(grown)))
    assert words in told


def test_a_rank_that_waits_for_others_advises_to_ask_them() -> None:
    """To ask the same rank once more tells no more."""
    verdict = Verdict(
        kind="unseen", is_hang=True, outcome="hang", headline="Rank 0 waits", confidence=UNASKED
    )
    (sign,) = signs("hang", facts({"steps": steps(20)}, verdict=verdict, is_here=True))
    assert sign.next == "probing -t all hang"
    known = Verdict(
        kind="unseen", is_hang=True, outcome="hang", headline="Rank 0 waits", confidence="high"
    )
    (sign,) = signs("hang", facts({"steps": steps(20)}, verdict=known, is_here=True))
    assert sign.next == ""


def test_one_and_several_are_told_apart() -> None:
    """By the verb, and by the number of times."""
    assert _behave(["Dropout"]) == "Dropout behaves"
    assert _behave(["BatchNorm1d", "Dropout"]) == "BatchNorm1d, Dropout behave"
    assert _versions([{"version": 1}]) == "once"
    assert _versions([{"version": 0}]) == "0 times"
    assert _versions([{"version": 1}, {"version": 3}]) == "1 to 3 times"
    assert _versions([{"version": None}]) == "an unknown number of times"
