"""The pattern in which optimizers step, and the steps of the training that it makes."""

from __future__ import annotations

import pytest

from probing.agent.sources.steps.ends.step_pattern import Place, StepPattern

pytestmark = pytest.mark.anypython

D, G = 1, 2


def told(
    steps: list[int], waits_for: set[int], *, is_late: bool = False, is_short: bool = False
) -> tuple[str, int]:
    """Which steps of optimizers end one of the training, by a bar, and how many those are.

    Args:
        is_short: Whether nothing is told of one that has ended a step alone, and steps again.
    """
    pattern, text, count = StepPattern(), "", 0
    pattern.is_late = is_late
    last = 0
    for who in steps:
        is_again = is_short and who == last
        ends = is_again or pattern.stepped(who, lambda: waits_for)
        last = who if ends and pattern.is_steady(who) else 0
        text += f"{who}{'|' if ends else ''}"
        count += 1 + (0 if is_again else pattern.missed) if ends else 0
    return text, count


@pytest.mark.parametrize(
    ("steps", "waits_for", "expected", "count"),
    [
        ([D] * 4, set(), "1|1|1|1|", 4),
        ([D, G] * 3, {D, G}, "12|12|12|", 3),
        ([D, D, D, G] * 3, {D, G}, "1112|1112|1112|", 3),
        ([1, 2, 3] * 3, {1, 2, 3}, "123|123|123|", 3),
        # Without anything to go by, the pattern shows; from then on numbers are right.
        ([D, G] * 6, set(), "1|2|1|21212|12|12|", 6),
        ([G, D, D, D] * 5, {D, G}, "21|112|1112111|2111|2111|", 5),
        # One after the other: whoever is waited for in vain is not waited for any longer.
        ([1] * 10 + [2] * 10, {1, 2}, "11111111|1|1|22222222|2|2|", 20),
        # A gradient scaler leaves one out.
        ([D, G] * 3 + [D] + [D, G] * 3, {D, G}, "12|12|12|112|12|12|", 6),
    ],
)
def test_a_step_ends_with_the_last_of_its_optimizers(
    steps: list[int], waits_for: set[int], expected: str, count: int
) -> None:
    """Learned from the pattern, and corrected when it changes."""
    assert told(steps, waits_for) == (expected, count)
    assert told(steps, waits_for, is_short=True) == (expected, count)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Known or not, one that was left out (-) is of the step of the others.
        ([D, G, -D, G, D, G], "12|-12|12|"),
        ([D, G] * 3 + [-D, G, D, G], "12|12|12|-12|12|"),
        ([D, G] * 3 + [D, -G, D, G], "12|12|12|1-2|12|"),
        ([D, D, G] * 3 + [-D, D, G, D, -D, G], "112|112|112|-112|1-12|"),
        # All were left out: nothing has ended.
        ([-D, -G] * 2 + [D, G], "-1-2-1-212|"),
        ([D, G] * 3 + [-D, -G] * 2 + [-D, G], "12|12|12|-1-2-1-2-12|"),
        ([-D, -D, D], "-1-11"),
    ],
)
def test_one_that_a_scaler_leaves_out_ends_no_step_alone(steps: list[int], expected: str) -> None:
    """It counts where another one has stepped in the same step of the training."""
    pattern, text = StepPattern(), ""
    for who in steps:

        def waits_for() -> set[int]:
            return {D, G} - set(pattern.since())

        ends = (pattern.stepped if who > 0 else pattern.left_out)(abs(who), waits_for)
        text += f"{who}{'|' if ends else ''}"
    assert text == expected


def test_a_late_start_finds_where_the_loop_begins() -> None:
    """Where the place of the call goes back in the script, a round begins."""
    pattern, ends = StepPattern(), []
    pattern.is_late = True
    for who in [G, *[D, G] * 4]:
        place = Place(((7, 10 * who),))
        ends.append(pattern.stepped(who, lambda: {D, G}, place))
    assert pattern.cycle == (D, G)
    assert ends[-4:] == [False, True, False, True]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([G, *[D, G] * 4], "212|12|12|12|"),
        ([D, G] * 4, "12|12|12|12|"),
        ([3, *[1, 2, 3] * 3], "3123|123|123|"),
        ([2, 3, *[1, 2, 3] * 3], "23123|123|123|"),
    ],
)
def test_a_late_start_begins_with_the_loop(steps: list[int], expected: str) -> None:
    """The rest of the step that it came into ends no step, nor does what lies in two rounds."""
    pattern, text = StepPattern(), ""
    pattern.is_late = True
    for who in steps:
        ends = pattern.stepped(who, lambda: set(steps), Place(((7, 10 * who),)))
        text += f"{who}{'|' if ends else ''}"
    assert text == expected


def test_a_long_training_keeps_its_pattern_cheap() -> None:
    """What is not foretold is asked for; what is, is not."""
    pattern = StepPattern()
    asked: list[int] = []

    def expected() -> set[int]:
        asked.append(1)
        return {D, G}

    for who in [D, G] * 100:
        pattern.stepped(who, expected)
    assert len(asked) <= 4
