"""Bytes and lengths of time in words."""

from __future__ import annotations

import math

import pytest

from probing.units import age, duration, figure, percent, percent_change, size, size_change

pytestmark = pytest.mark.anypython

SIZES = [
    (0, "0 B"),
    (1, "1 B"),
    (0.44, "0.44 B"),
    (-3, "-3 B"),
    (99.4, "99 B"),
    (99.6, "100 B"),
    (999.5, "1000 B"),
    (1023, "1023 B"),
    (1023.7, "1.00 KiB"),
    (1024, "1.00 KiB"),
    (9.999 * 1024, "10.0 KiB"),
    (999.5 * 1024, "999.5 KiB"),
    (1023.94 * 1024, "1,023.9 KiB"),
    (1023.99 * 1024, "1.00 MiB"),
    (1.5 * 2**30, "1.50 GiB"),
    (-1.5 * 2**30, "-1.50 GiB"),
    (80 * 2**30, "80.0 GiB"),
    (5000 * 2**50, "5,000.0 PiB"),
    (math.nan, "-"),
    (math.inf, "-"),
    (None, "-"),
]
CHANGES = [(0, "0 B"), (12, "+12 B"), (-2048, "-2.00 KiB"), (1.5 * 2**30, "+1.50 GiB")]
DURATIONS = [
    (0, "0 s"),
    (1e-12, "0 s"),
    (12e-9, "12 ns"),
    (999.4e-9, "999 ns"),
    (999.6e-9, "1 us"),
    (-1.5e-3, "-1.5 ms"),
    (0.9994, "999 ms"),
    (0.9996, "1 s"),
    (1.234, "1.23 s"),
    (119.7, "120 s"),
    (121, "2 min"),
    (-180, "-3 min"),
    (7201, "2 h"),
    (200_000, "2 d"),
    (math.nan, "-"),
    (-math.inf, "-"),
    (None, "-"),
]
FIGURES = [
    (0, "0"),
    (69_554.3, "69,554"),
    (999.96, "1,000"),
    (2.31749, "2.317"),
    (-0.5, "-0.5"),
    (123_456_789, "123,456,789"),
    (1e9, "1e9"),
    (1.23456e30, "1.235e30"),
    (1e-4, "0.0001"),
    (-3.2e-7, "-3.2e-7"),
    (math.nan, "nan"),
    (math.inf, "inf"),
    (None, "-"),
]
AGES = [
    (0, "0.0 s"),
    (-1, "0.0 s"),
    (0.44, "0.4 s"),
    (9.94, "9.9 s"),
    (9.96, "10 s"),
    (119.4, "119 s"),
    (180, "3 min"),
    (7200, "2 h"),
    (172_800, "2 d"),
    (math.nan, "-"),
    (None, "-"),
]


@pytest.mark.parametrize(("amount", "words"), SIZES)
def test_a_size(amount: float | None, words: str) -> None:
    """Bytes have the unit that keeps few digits, also where rounding reaches the next one."""
    assert size(amount) == words


@pytest.mark.parametrize(("amount", "words"), CHANGES)
def test_a_change_of_size(amount: float, words: str) -> None:
    """A change has its sign, and none where nothing changed."""
    assert size_change(amount) == words


@pytest.mark.parametrize(("seconds", "words"), DURATIONS)
def test_a_duration(seconds: float | None, words: str) -> None:
    """A measured time has three digits, also where rounding reaches the next unit."""
    assert duration(seconds) == words


@pytest.mark.parametrize(("value", "words"), FIGURES)
def test_a_number(value: float | None, words: str) -> None:
    """It is written in full, with its thousands apart, unless it is very large or small."""
    assert figure(value) == words


@pytest.mark.parametrize(
    ("value", "digits", "words"),
    [(99.6, 2, "100"), (125.0, 2, "120"), (0.5, 2, "0.5"), (47.1, 2, "47"), (1234.0, 3, "1,234")],
)
def test_a_number_of_few_digits_is_written_in_full(value: float, digits: int, words: str) -> None:
    """Nobody reads 1e+02 as a hundred."""
    assert figure(value, digits) == words


@pytest.mark.parametrize(("seconds", "words"), AGES)
def test_an_age(seconds: float | None, words: str) -> None:
    """An age is coarse and never negative."""
    assert age(seconds) == words


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.125, 1, "12.5 %"),
        (1.0, 1, "100.0 %"),
        (0.0, 1, "0.0 %"),
        (0.0, 0, "0 %"),
        (4e-4, 1, "<0.1 %"),
        (4e-3, 0, "<1 %"),
        (0.966, 0, "97 %"),
        (None, 1, "-"),
        (math.nan, 1, "-"),
    ],
)
def test_shares_are_written_in_one_way(share: float | None, digits: int, text: str) -> None:
    """With a space, and never as nothing where there is something."""
    assert percent(share, digits=digits) == text


def test_changes_have_a_sign() -> None:
    """But for what does not show."""
    changes = [percent_change(one) for one in (0.0123, -0.03, -4e-5, 0.0)]
    assert changes == ["+1.2 %", "-3.0 %", "0.0 %", "0.0 %"]
