"""One screen of a process and the grid of a job: what is drawn, and that it fits and adds up."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from probing.cli.render.bars import gauge, shares_of, sparkline, stacked_bar
from probing.cli.render.text import cut_middle, cut_words, wrap_words
from tests.harness.golden import assert_golden
from tests.unit.cli.overview_samples import HEALTHY, SCREENS, draw_grid, draw_screen

pytestmark = pytest.mark.anypython

GOLDEN = Path(__file__).parent / "golden_screens"
DRAWINGS: dict[str, Callable[[], str]] = {
    **{
        f"{name}_{width}": lambda one=one, width=width: draw_screen(one, width)  # type: ignore[misc]
        for name, one in SCREENS.items()
        for width in (80, 120)
    },
    "healthy_color": lambda: draw_screen(HEALTHY, 80, color=True),
    "grid_4": lambda: draw_grid(4),
    "grid_4_wide": lambda: draw_grid(4, 120),
    "grid_64": lambda: draw_grid(64),
    "grid_64_color": lambda: draw_grid(64, color=True),
    "grid_1024": lambda: draw_grid(1024),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_screen_is_the_golden_one(name: str) -> None:
    """A screen is exactly the text in its golden file."""
    assert_golden(GOLDEN / f"{name}.txt", DRAWINGS[name]())


def test_of_an_ended_process_only_what_answers_is_advised() -> None:
    """No stack of one that left none, and no steps of one that made none."""
    dead = SCREENS["dead"]
    assert {"backtrace", "query"} <= set(draw_screen(dead, 80).split())
    without = draw_screen(dataclasses.replace(dead, has_stack=False), 80)
    assert "backtrace" not in without
    assert "its last steps" in without
    assert "query" not in draw_screen(dataclasses.replace(dead, pace=None), 80)


def test_no_golden_screen_is_left_over() -> None:
    """Every golden file belongs to a drawing."""
    assert {path.stem for path in GOLDEN.iterdir()} == set(DRAWINGS)


@pytest.mark.parametrize("name", DRAWINGS)
def test_it_fits_one_screen(name: str) -> None:
    """No more than 23 lines, so that the prompt fits below, none wider than the terminal."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", DRAWINGS[name]()).split("\n")
    assert len(lines) <= (23 if "1024" not in name else 26)  # 1,024 ranks need three more
    assert max(map(len, lines)) <= (120 if name.endswith(("120", "wide")) else 80)


@pytest.mark.parametrize("name", [name for name in DRAWINGS if "color" not in name])
def test_no_word_of_the_process_steers_the_terminal(name: str) -> None:
    """What another process says is shown with its control characters written out."""
    assert not set(DRAWINGS[name]()) & {chr(code) for code in range(32) if code != 10}


@pytest.mark.parametrize(
    "parts", [[1.0], [1, 1, 1], [0.005] * 3 + [1.0], [33.4, 33.3, 33.3], [0.0, 5.0], [1e-9, 1e9]]
)
@pytest.mark.parametrize("whole", [1, 7, 100])
def test_parts_never_sum_to_more_than_their_whole(parts: list[float], whole: int) -> None:
    """However the parts are rounded, they add up to exactly the whole."""
    assert sum(shares_of(parts, whole)) == whole
    assert all(share >= 0 for share in shares_of(parts, whole))


def test_nothing_has_no_shares() -> None:
    """Parts of nothing are nothing, and no division by it."""
    assert shares_of([0.0, 0.0], 10) == [0, 0]
    assert shares_of([], 10) == []


@pytest.mark.parametrize("width", [3, 10, 69])
def test_a_bar_is_as_wide_as_it_is_told(width: int) -> None:
    """With colours and without, whatever its parts are."""
    parts = {"data wait": 0.1, "forward": 0.3, "backward": 0.5, "gradients": 1e-6, "other": 0.1}
    assert len(stacked_bar(parts, width, color=False)) == width
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stacked_bar(parts, width, color=True))
    assert len(plain) == width - 1


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([1.0, 2.0, 3.0], 10, "▁▅█"),
        ([3.0, 3.0], 10, "▅▅"),
        ([1.0, None, 2.0], 10, "▁ █"),
        ([1.0, math.nan, math.inf], 10, "▅!!"),
        ([1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 2, "▁█"),
        ([-1.7e308, 0.0, 1.7e308], 10, "▁▅█"),
        ([1.7e308, 1.7e308, 0.0, 0.0, 1.0, math.inf], 3, "█▁!"),
        ([0.0, 5e-324], 10, "▁█"),
        ([], 10, ""),
        ([None], 10, " "),
    ],
)
def test_a_curve_goes_from_low_to_high(values: list[float | None], width: int, drawn: str) -> None:
    """What is not known is a gap, what is not finite a mark, and many values share a column."""
    assert sparkline(values, width) == drawn


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0.0, "[........]"), (1e-6, "[#.......]"), (0.999, "[#######.]"), (1.0, "[########]"),
     (7.0, "[########]"), (-1.0, "[........]")],
)  # fmt: skip
def test_full_is_full_and_empty_is_empty(share: float, drawn: str) -> None:
    """A gauge is full only where the thing is, and empty only where it is."""
    assert gauge(share, 10) == drawn


def test_names_are_cut_in_the_middle() -> None:
    """Dotted names keep the end, by which they differ."""
    assert cut_middle("transformer.h.11.attn.c_proj", 20) == "transfo….attn.c_proj"
    assert cut_middle("short", 20) == "short"
    assert len(cut_middle("transformer.h.11.attn.c_proj", 5)) == 5


def test_sentences_are_cut_between_words() -> None:
    """No half of a word stands at the edge."""
    assert cut_words("the wait for data, and more", 20) == "the wait for data…"
    assert wrap_words(["forward 23 %", "backward 50 %"], 15) == ["forward 23 %,", "backward 50 %"]


@pytest.mark.parametrize(
    ("judged", "late", "told"),
    [
        (1, (), ("findings  none by 1 rule on its record; `doctor` looks at more",)),
        (
            5, (*"abcde",),
            ("findings  by 5 of the 26 rules that go by its record; no time was left for a, b,",
             "          c, d and more: `doctor` looks"),
        ),
    ],
)  # fmt: skip
def test_what_was_not_looked_at_is_not_called_healthy(
    judged: int, late: tuple[str, ...], told: tuple[str, ...]
) -> None:
    """Rules for which there was no time are counted, and nothing is said to be found by none."""
    one = dataclasses.replace(
        HEALTHY, findings=(), judged=judged, late=21 if late else 0, late_subjects=late
    )
    lines = draw_screen(one, 80).split("\n")
    at = lines.index(told[0])
    assert tuple(lines[at : at + len(told)]) == told
