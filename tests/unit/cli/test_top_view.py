"""The live screen without a terminal: keys in, lines out."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from hypothesis import given, strategies as st

from probing.cli.live.keys import decode_keys
from probing.cli.live.looking import Sight, with_gone, without_anybody
from probing.cli.live.view import View
from probing.cli.render.text import fit_line, visible_width
from probing.cli.reports.rank_grid import GridCell, RankGrid
from probing.errors import BadEndpoint, NoSuchFolder, NoSuchProcess, NotAnswering, ProbingError
from probing.messages.about.stacks import Awaited, Backtrace, ThreadStack
from tests.unit.cli.overview_samples import HEALTHY

pytestmark = pytest.mark.anypython

PHASES = {"data_wait": 0.1, "forward": 0.05, "backward": 0.09, "other": 0.01}


def cell(number: int, **changes: object) -> GridCell:
    """A rank that trains."""
    made = GridCell(
        name=f"rank {number}", rank=number, job="big", host=f"node{number // 8}", pid=1000 + number,
        state="training", step=100 + number, duration_s=0.25, data_wait_s=0.1, sync_s=None,
        loss=2.5 - number / 100, step_s=0.25 + number / 1000, phases=PHASES, memory_bytes=3 << 30,
        endpoint=f"/dev/shm/probing-0/{1000 + number}-1",
    )  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


CELLS = (*map(cell, range(38)), cell(38, state="stopped", step=90), cell(39, phases={}, loss=None))
SIGHT = Sight(
    at_s=1_800_000_000.0,
    every_s=1.0,
    grid=RankGrid(label="job big", expected=40, cells=CELLS),
    one=HEALTHY,
)


def press(view: View, *keys: str) -> list[str | None]:
    """Press keys; what others have to do after each."""
    return [view.press(key, SIGHT) for key in keys]


def lines_of(view: View, columns: int = 80, lines: int = 24, *, color: bool = False) -> list[str]:
    """The screen."""
    return view.frame(SIGHT, columns=columns, lines=lines, color=color)


def marked(view: View) -> str:
    """The line that keys are about."""
    return next(line for line in lines_of(view) if line.startswith("> "))


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("mode", ["ranks", "one", "stack", "help"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 10), (1, 1)])
def test_every_screen_has_its_size(mode: str, size: tuple[int, int], color: bool) -> None:
    """As many lines as the terminal has, the last two of them the command and the keys."""
    columns, rows = size
    shown = lines_of(View(asked="-t all", mode=mode, chosen="x"), columns, rows, color=color)
    assert len(shown) == max(3, rows)
    if columns >= 40 and mode != "help":
        assert "the same: probing" in shown[-2]
        assert visible_width(shown[-1]) <= columns


def test_no_line_of_the_keys_is_cut() -> None:
    """On the narrowest screen that is promised."""
    assert all(len(line) <= 80 for line in lines_of(View(asked="-t all", mode="help")))


def test_processes_without_a_rank_are_told_apart() -> None:
    """Beside a job whose name is long: by their pids, under a heading that is whole."""
    others = [cell(n, rank=None, job=None, name=f"process {1000 + n}", step=7) for n in (5, 6)]
    label = "job 0b64aafb-67f6-4971-8b5a-f39de4a4f2d1-with-more-behind-it"
    grid = RankGrid(label=label, expected=3, cells=(*map(cell, range(3)), *others))
    sight = dataclasses.replace(SIGHT, grid=grid)
    lines = View(asked="-t all").frame(sight, columns=80, lines=24, color=False)
    assert re.fullmatch(r"job \S+…\S+: 3 of 3 ranks seen, 2 other processes", lines[0])
    assert len(lines[0]) <= 80
    assert [line.split()[0] for line in lines if " training " in line and "1005" in line] == [
        "1005"
    ]
    assert any("1006" in line for line in lines)


def test_a_process_is_known_by_its_script() -> None:
    """Where there are no ranks, or room; a filter finds it, and a state is whole at 80 columns."""
    found = [
        cell(n, rank=None, job=None, name=f"process {n}", script=f"train_{n}.py", state=state)
        for n, state in ((5, "training"), (6, "no step ends"))
    ]
    sight = dataclasses.replace(
        SIGHT, grid=RankGrid(label="all", expected=None, cells=tuple(found))
    )
    view = View(asked="-t all")
    shown = view.frame(sight, columns=80, lines=24, color=False)
    (line,) = [one for one in shown if "train_6.py" in one]
    assert "no step ends" in line
    press(view, "/", *"train_5", "enter")
    assert [one.script for one in view.shown(sight)] == ["train_5.py"]


def test_what_a_thread_waits_for_is_whole() -> None:
    """The line that tells it is broken between words where the screen is narrow."""
    thread = ThreadStack(
        thread_id=1, name="MainThread", is_main=True, frames=(), waiting="waiting for a lock",
        awaits=Awaited(kind="lock", what="the lock self.lock", who="which thread 2 has held " * 4),
    )  # fmt: skip
    sight = dataclasses.replace(
        SIGHT, stack=(Backtrace(pid=1, source="agent", threads=(thread,)), 0.0)
    )
    lines = View(asked="-t all", mode="stack").frame(sight, columns=60, lines=24, color=False)
    assert " ".join(" ".join(lines).split()).count("which thread 2 has held") == 4


def test_the_marked_line_is_always_on_the_screen() -> None:
    """Of 40 ranks, 24 lines show those around the marked one."""
    view = View(asked="-t all")
    assert marked(view).split()[1] == "0"
    press(view, *["down"] * 25)
    assert marked(view).split()[1] == "25"
    press(view, "end")
    assert marked(view).split()[1] == "39"
    press(view, "page up", "k")
    assert marked(view).split()[1] == str(39 - view.page - 1)
    press(view, "home")
    assert marked(view).split()[1] == "0"


def test_orders_put_the_oddest_first() -> None:
    """By state who does not train, by step who is behind; `r` turns each round."""
    view = View(asked="-t all")
    press(view, "s")
    assert (view.order, view.shown(SIGHT)[0].rank) == ("state", 38)
    press(view, "s")
    assert (view.order, view.shown(SIGHT)[0].rank) == ("step", 38)
    press(view, "s")
    assert (view.order, view.shown(SIGHT)[0].rank) == ("each", 39)
    press(view, "s")
    assert (view.order, view.shown(SIGHT)[-1].rank) == ("data", 39)  # nothing is known of it
    press(view, "s", "s", "s", "s", "r")
    assert (view.order, view.shown(SIGHT)[0].rank) == ("rank", 39)


def test_a_loss_that_is_not_finite_comes_first() -> None:
    """The others stand from the largest on, wherever they stood, and who has none is the last."""
    losses = [1.0, math.nan, 3.0, None, -math.inf, 2.0, math.nan, 4.0]
    cells = tuple(cell(number, loss=loss) for number, loss in enumerate(losses))
    grid = RankGrid(label="job big", expected=len(cells), cells=cells)
    sight = dataclasses.replace(SIGHT, grid=grid)
    view = View(asked="-t all", order="loss")
    assert [found.rank for found in view.shown(sight)] == [1, 4, 6, 7, 2, 5, 0, 3]


def test_a_filter_is_typed() -> None:
    """Letters in state, rank, pid or host; enter keeps it, escape takes it away."""
    view = View(asked="-t all")
    press(view, "/", *"NODE4x", "backspace", "enter")
    assert [c.rank for c in view.shown(SIGHT)] == list(range(32, 40))
    assert "8 with 'NODE4'" in "\n".join(lines_of(view))
    press(view, "/", *"q1038")
    assert view.shown(SIGHT) == []
    press(view, "escape")
    assert len(view.shown(SIGHT)) == 40


def test_keys_lead_there_and_back() -> None:
    """Each view has its command; q ends from everywhere but a filter."""
    view = View(asked="-t all")
    assert view.command(SIGHT) == "probing -t all"
    assert press(view, "down", "enter") == [None, "one"]
    assert view.command(SIGHT) == "probing 1001"
    assert press(view, "b", "c", "v", "u") == ["stack", "copy", None, "renew"]
    assert press(View(asked="x"), "u") == ["renew"]
    assert view.command(SIGHT) == "probing 1001 backtrace"
    assert press(view, "escape", "?", "x", "escape") == [None, None, None, "all"]
    assert press(view, " ", " ", "b", "q") == ["pause", "pause", "stack", "quit"]
    assert press(View(asked="x"), "/", "q", "enter", "q") == [None, None, None, "quit"]


def test_what_has_gone_is_kept_as_ended() -> None:
    """A process that is not found any more stays; a rank that came back takes its place."""
    before = (cell(0), cell(1), cell(2, rank=None, job=None))
    missing = cell(1, pid=None, host="", state="missing")
    now = with_gone(before, (cell(0), missing))
    assert [(c.rank, c.pid, c.state) for c in now] == [
        (0, 1000, "training"), (1, 1001, "dead"), (None, 1002, "dead"),
    ]  # fmt: skip
    again = with_gone(now, (cell(0), cell(1, pid=7)))
    assert [(c.rank, c.pid, c.state) for c in again] == [
        (0, 1000, "training"), (1, 7, "training"), (None, 1002, "dead"),
    ]  # fmt: skip


def test_a_rank_whose_node_is_late_has_not_ended() -> None:
    """It has when its node server answers without it; and one that has ended stays so."""
    far, near, local = (
        dataclasses.replace(cell(rank), endpoint=f"http://b:9741/v1/ranks/{rank}-1") if rank < 2
        else cell(rank) for rank in range(3)
    )  # fmt: skip
    silent = cell(0, rank=None, pid=None, host="", state="missing", endpoint="b:9741")
    before = (far, dataclasses.replace(near, state="dead"), local, cell(3, endpoint="c:9741"))

    def told(now: tuple[GridCell, ...], *, has_answer: bool = True) -> list[tuple[str, bool]]:
        gone = with_gone(before, now, has_answer=has_answer)
        return [(c.state, c.is_late) for c in sorted(gone, key=lambda c: c.rank or 0) if c.pid]

    late, dead = ("not answering", True), ("dead", False)
    assert told((local, silent)) == [late, dead, ("training", False), dead]
    assert told((local,)) == [dead, dead, ("training", False), dead]
    assert told((), has_answer=False) == [late, dead, dead, late]
    gone = with_gone(before, (local, silent))
    back = {c.rank: c.state for c in with_gone(gone, (far, local))}
    assert back == {0: "training", 1: "dead", 2: "training", 3: "dead"}


@pytest.mark.parametrize(
    ("error", "states"),
    [
        (NoSuchProcess("at all"), ["dead", "dead"]),
        (NoSuchFolder("/dev/shm/probing-0/5-1"), ["dead", "dead"]),
        (NotAnswering("b:9741", 5.0), ["dead", "not answering"]),
        (BadEndpoint("rank:0", "it fits several jobs"), ["training", "training"]),
    ],
)
def test_why_nobody_was_found(error: ProbingError, states: list[str]) -> None:
    """That a word fits several jobs says nothing of who runs."""
    cells = (cell(0), cell(1, endpoint="http://b:9741/v1/ranks/1-1"))
    grid = RankGrid(label="all", expected=2, cells=cells)
    assert [one.state for one in without_anybody(grid, error).cells] == states


def test_keys_have_names() -> None:
    """Arrows in both ways that terminals send them, letters of any language, an escape alone."""
    sent = "q\x1b[A\x1bOB\x1b[6~\r\x7fé\x1b[1;5Cx\x1b"
    assert decode_keys(sent.encode()) == [
        "q", "up", "down", "page down", "enter", "backspace", "é", "x", "escape",
    ]  # fmt: skip


@given(st.binary(max_size=50))
def test_no_bytes_are_a_mistake(data: bytes) -> None:
    """Whatever a terminal sends is keys, or nothing."""
    for key in decode_keys(data):
        assert key


@given(st.text(st.sampled_from("ab日\x1b[31m "), max_size=40), st.integers(0, 20))
def test_a_line_fits(text: str, columns: int) -> None:
    """No line takes more columns than there are, and none loses a colour."""
    fitted = fit_line(text, columns)
    assert visible_width(fitted) <= max(columns, 0)
    assert fitted.count("\x1b[31m") == text.count("\x1b[31m")
