"""Whether a series grows, which series do, and which mistake a row shows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from probing.diagnosis.leaks.history import series_of
from probing.diagnosis.leaks.lines import line_that_adds
from probing.diagnosis.leaks.mistakes import findings_of
from probing.diagnosis.leaks.series import LEAST_STEPS, Point, classify
from tests.unit.memory.leak_samples import KEPT_GRAPH, history_rows, leak_row, step_rows

pytestmark = pytest.mark.anypython

KEPT_GRAPH_BYTES = 1_115_648  # 1089.5 KiB, as measured of a small GPT whose graphs are kept

FIRST_QUESTIONS = """
0:0 13:688 17:692 20:696 23:696 26:700 30:704 33:712 35:716 39:720 41:720 45:724 48:728 51:736
53:740 56:740 60:744 63:744 65:752 69:756 71:760 74:764 76:764 80:768 83:776 86:780 91:788
95:788 97:792 100:792 103:804 106:808 109:816 112:816 114:816 117:820 119:820 122:824 123:828
126:828 128:836 131:836 133:836 135:844 139:848 144:852 147:860 150:860 153:868 157:2056
160:5936 163:14060 164:14252 166:14868 169:16236 173:16692 175:16692 177:16696 181:16704
182:16704 184:16744 186:16828 190:16828 192:16836 197:16852 199:16856 201:16860 203:16864
207:16872 211:16876 215:19192 218:19200 222:19204 224:19204 228:19204 233:19672 236:19680
239:19764 243:19808 246:19820 248:19832 252:19836 254:19840 258:19852 263:19904 267:19904
270:19908 273:19916
"""
"""Steps of a training without a leak, and by how many KiB its resident set had risen."""


def points(values: list[float], first: int = 0) -> list[Point]:
    """One value per step."""
    return [Point(first + place, value) for place, value in enumerate(values)]


@settings(deadline=None)
@given(slope=st.integers(1, 1 << 40), base=st.integers(0, 1 << 40), count=st.integers(8, 120))
def test_a_steady_growth_is_a_slope(slope: int, base: int, count: int) -> None:
    """Any growth by the same amount is found, down to a byte per step, with its exact slope."""
    trend = classify(points([float(base + slope * step) for step in range(count)], first=7))
    assert (trend.kind, trend.slope, trend.first_step, trend.steps) == ("slope", slope, 7, count)
    assert trend.r2 == pytest.approx(1.0)


@settings(deadline=None)
@given(rise=st.integers(1, 1 << 30), every=st.integers(2, 5), base=st.integers(0, 1 << 30))
def test_what_grows_now_and_then_is_a_staircase(rise: int, every: int, base: int) -> None:
    """A rise every few steps is a staircase, with the mean growth per step."""
    trend = classify(points([float(base + rise * (step // every)) for step in range(60)]))
    assert trend.kind == "staircase"
    assert trend.slope == pytest.approx(rise / every, rel=0.1)


@pytest.mark.parametrize("count", [LEAST_STEPS, 12, 20, 50, 92, 200])
def test_noise_with_a_jump_is_flat(count: int) -> None:
    """Values that vary around a level, and around a higher one after a jump, are no leak.

    Where the jump is as large as the noise, chance may look like growth: once in a hundred at most.
    """
    wrong = 0
    for seed in range(300):
        draw = random.Random(seed)
        when, jump = draw.randrange(count), draw.choice([0.0, 0.3, 0.7, 1.0, 1.5, 3.0, 10.0])
        values = [1e9 + draw.uniform(0, 1) + jump * (step >= when) for step in range(count)]
        wrong += classify(points(values)).grows
    assert wrong <= 3


@pytest.mark.parametrize("noise", [0, KEPT_GRAPH_BYTES, 8 * KEPT_GRAPH_BYTES])
def test_a_leak_is_seen_through_noise(noise: int) -> None:
    """A growth that begins late is found in noise of many times its size, with its first step."""
    draw = random.Random(0)
    values = [
        5e8 + KEPT_GRAPH_BYTES * max(0, step - 50) + draw.uniform(0, noise) for step in range(200)
    ]
    trend = classify(points(values))
    assert trend.kind in {"slope", "staircase"}
    assert trend.slope == pytest.approx(KEPT_GRAPH_BYTES, rel=0.02)
    assert trend.first_step is not None
    assert abs(trend.first_step - 50) <= 2 + 8 * (noise > 0)


def test_few_steps_are_not_judged() -> None:
    """Below the least number of steps there is no verdict, whatever the values."""
    trend = classify(points([float(step) for step in range(LEAST_STEPS - 1)]))
    assert (trend.kind, trend.steps) == ("unknown", LEAST_STEPS - 1)
    assert classify([]).last is None


def test_what_levels_off_is_flat() -> None:
    """Caches that fill up to a level are no leak once they are full, and never become one."""
    values = [float(int(1e6 * (1 - 0.5**step))) for step in range(60)]
    assert classify(points(values), least_rise=4096).kind == "flat"


@pytest.mark.parametrize(
    ("slopes", "growing"),
    [
        ({}, set()),
        ({"allocated": 512}, {"allocated"}),
        ({"reserved": 1 << 20}, {"reserved, not allocated"}),
        ({"outside": 4 << 20}, {"outside of torch"}),
        ({"reserved": 1 << 10, "outside": 1 << 10}, set()),
    ],
    ids=str,
)
def test_the_three_series_are_told_apart(slopes: dict[str, int], growing: set[str]) -> None:
    """A leak, fragmentation and what grows outside of torch each move their own series only."""
    found = series_of(history_rows(**slopes))
    assert {each.name for each in found if each.trend.grows} == growing
    assert {each.device for each in found} == {"cuda:0"}


def test_without_an_accelerator_the_resident_set_stands_in() -> None:
    """On a CPU the resident set is judged, and its small rises are not."""
    empty = dict.fromkeys(("allocated_bytes", "reserved_bytes", "device_used_bytes"))
    rows = [
        {"step": step, "device": "cpu", "resident_bytes": (1 << 30) + step * (1 << 16), **empty}
        for step in range(1200)
    ]
    assert [(each.name, each.trend.kind) for each in series_of(rows)] == [("resident set", "slope")]
    assert series_of(rows[:200])[0].trend.kind == "flat", "12 MiB in all are not worth a word"


def test_what_the_first_questions_load_is_no_growth() -> None:
    """The code that status, eval and leak load in a healthy training is no growth of its own."""
    empty = dict.fromkeys(("allocated_bytes", "reserved_bytes", "device_used_bytes"))
    figures = [figure.split(":") for figure in FIRST_QUESTIONS.split()]
    known = [Point(int(step), (300 << 20) + (int(kib) << 10)) for step, kib in figures]
    rows = [
        {"step": point.step, "device": "cpu", "resident_bytes": point.value, **empty}
        for point in known
    ]
    assert classify(known, least_rise=16 << 20).grows
    assert [(each.name, each.trend.kind) for each in series_of(rows)] == [("resident set", "flat")]


def test_a_loss_and_what_its_graph_keeps_are_one_finding() -> None:
    """The storages of a graph count to the tensor that keeps it; a bounded deque is no leak."""
    first, hooks, deque, zero_grad = KEPT_GRAPH.findings
    assert (first.mistake, first.bytes_per_step, first.tensors_per_step) == ("loss", 6148.0, 4.0)
    assert "`all_losses.append(loss.item())`" in first.instead
    assert (hooks.mistake, hooks.bytes_per_step) == ("hooks", None)
    assert (deque.mistake, deque.is_leak) == ("bounded", False)
    assert (zero_grad.mistake, zero_grad.is_leak) == ("zero_grad", False)


@pytest.mark.parametrize(
    ("given_row", "mistake"),
    [
        ({}, "numbers"),
        ({"shape": "float32[8,10]"}, "tensors"),
        ({"shape": "float32[8,10]", "has_graph": True}, "outputs"),
        ({"shape": "float32[8,10]", "was_input": True}, "batches"),
        ({"category": "parameters", "module": "layers.*"}, "modules"),
        ({"category": "optimizer_state"}, "optimizer"),
        ({"category": "activations", "holder": "native", "has_graph": None}, "graph"),
        ({"holder": "traceback"}, "traceback"),
        ({"holder": "cycle", "path": None}, "cycle"),
    ],
    ids=str,
)
def test_each_mistake_has_its_name(given_row: dict[str, object], mistake: str) -> None:
    """What is kept, and by whom, decides which mistake it is."""
    assert [found.mistake for found in findings_of([leak_row(**given_row)], step_rows())] == [
        mistake
    ]


@pytest.mark.parametrize(
    ("text", "lineno"),
    [
        ("losses = []\nfor x in y:\n    losses.append(x)\n", 3),
        ("losses += [x]\n", 1),
        ('history["losses"].append(x)\n', 1),
        ("self.losses[step] = x\n", 1),
        ("losses = [*losses, x]\n", 1),
        ("all_losses.append(x)\n# losses.append(x)\nprint(losses)\n", None),
        ("losses.append(x)\nlosses.append(y)\n", None),
    ],
)
def test_the_line_that_adds(tmp_path: object, text: str, lineno: int | None) -> None:
    """The one line that adds to a variable is told; of several, none."""
    path = f"{tmp_path}/train.py"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    assert line_that_adds(path, "losses") == lineno


MIB = 1 << 20


@pytest.mark.parametrize(
    ("pools", "rate"),
    [
        (tuple(64 * MIB * step for step in range(9)), 64.0 * MIB),
        ((0, 64 * MIB, 128 * MIB, *[128 * MIB] * 6), None),
        ((512 * MIB,) * 9, None),
        (None, None),
    ],
    ids=["one per step", "two at first", "as many all the time", "none on the CPU"],
)
def test_graphs_captured_again_and_again_are_a_leak(
    pools: tuple[int, ...] | None, rate: float | None
) -> None:
    """Pools that grow with every step are named with their rate; a few captures at first not."""
    found = findings_of([], step_rows(pools=pools))
    assert [(one.mistake, one.is_leak, one.bytes_per_step) for one in found] == (
        [] if rate is None else [("graph_pools", True, rate)]
    )
