"""What a notebook shows: pictures of figures made by hand, and a text for every answer."""

from __future__ import annotations

import math
import os
import re
import xml.etree.ElementTree as ET

import pyarrow as pa
import pytest

from probing.api import asynchronous, ranks, steps
from probing.cli.notebook import pictures, shown, texts
from probing.cli.notebook.stacks import backtrace_html
from probing.cli.notebook.steps import steps_html
from probing.client import connecting
from probing.errors import NotAnswering
from probing.messages import limits
from probing.messages.about.stacks import Backtrace, Frame, ThreadStack
from probing.messages.common import LiveRows
from probing.messages.frozen import InNotebooks
from probing.tables import TABLES
from probing.units import duration, size

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


def drawn(page: str) -> list[ET.Element]:
    """The pictures on a page, which are XML."""
    return [ET.fromstring(picture) for picture in SVG.findall(page)]


def titles(page: str) -> list[str]:
    """What is said under the mouse."""
    return re.findall(r"<title>(.*?)</title>", page)


def test_a_curve_says_what_is_not_finite_and_what_is_not_known() -> None:
    """NaN is a red line, a gap parts the course, and each step has its figure."""
    page = pictures.curve("loss", range(5, 10), [2.0, 1.5, None, math.nan, 1.0])
    (picture,) = drawn(page)
    paths = [e.get("stroke") for e in picture.iter() if e.tag.endswith("path")]
    assert paths.count(pictures._COLORS[2]) == 2
    assert paths.count(pictures._BAD) == 1
    assert titles(page) == [
        "step 5: 2", "step 6: 1.5", "step 7: not known", "step 8: nan", "step 9: 1",
    ]  # fmt: skip
    assert pictures.curve("lr", [1, 2], [None, None]) == ""


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0], [math.inf], [0.0, 1e308, -1e308]])
def test_odd_courses_are_drawn(values: list[float]) -> None:
    """One step, a constant, nothing finite, the widest range there is."""
    (picture,) = drawn(pictures.curve("x", range(len(values)), values))
    assert "nan" not in ET.tostring(picture, "unicode").replace("nan<", "")


def test_a_long_course_is_drawn_by_stretches() -> None:
    """A picture does not grow with the record, and a single NaN in it stays seen."""
    values: list[float | None] = [1.0] * 20_000
    values[12_345] = math.nan
    page = pictures.curve("loss", range(20_000), values)
    assert len(titles(page)) == 500
    assert pictures._BAD in page


def test_parts_keep_their_colours_and_add_up() -> None:
    """What is nothing is left out of the picture, without another part taking its colour."""
    parts = {"parameters": 300, "gradients": 0, "other": 100}
    page = pictures.bar("cpu", parts, size)
    (picture,) = drawn(page)
    boxes = [e for e in picture.iter() if e.tag.endswith("rect")]
    assert [b.get("width") for b in boxes] == ["480.0", "160.0"]
    assert [b.get("fill") for b in boxes] == [pictures._COLORS[0], pictures._COLORS[2]]
    assert titles(page)[0] == "parameters: 300 B, 75.0 %"
    assert pictures.bar("cpu", {"other": 0}, size) == ""
    page = pictures.areas(
        "time", [1, 2], {"a": [0.1, None], "b": [None, None], "c": [0.2, 0.3]}, duration
    )
    assert titles(page) == ["step 1: a 100 ms, c 200 ms", "step 2: a 0 s, c 300 ms"]


def test_steps_are_curves_of_what_is_known() -> None:
    """Older records lack columns, a training without losses has no curve of them."""
    table = pa.table({"step": [3, 4], "forward_s": [0.1, 0.2], "loss": pa.nulls(2, pa.float64())})
    page = steps_html(steps.Steps("4242", table))
    assert len(drawn(page)) == 1
    assert "time of a step" in page
    assert "loss" not in page
    assert "no step of 4242 is on record" in steps_html(steps.Steps("4242", table.slice(0, 0)))


def test_what_a_process_says_goes_in_as_text() -> None:
    """Names of threads and files bring no tags and no control characters into a notebook."""
    bad = "<script>alert(1)</script>\x1b[2J"
    frame = Frame(func=bad, file=bad, lineno=1, line=bad)
    thread = ThreadStack(thread_id=1, name=bad, is_main=True, frames=(frame,), waiting=bad)
    trace = Backtrace(pid=1, source=bad, threads=(thread,), note=bad)
    live = LiveRows(table="tensors", columns=(bad,), rows=((bad,),), note=bad)
    for page in (backtrace_html(trace), shown.html_of(live)):
        assert "script&gt;" in page
        assert "<script" not in page
        assert "\x1b" not in page


def test_frames_of_libraries_are_folded_away_but_for_the_innermost() -> None:
    """One's own code is seen at once, and where it waits."""
    library = "/x/site-packages/torch/nn/modules/module.py"
    files = [library, library, "/home/me/train.py"]
    frames = tuple(Frame(func=f"f{i}", file=file, lineno=i + 1) for i, file in enumerate(files))
    thread = ThreadStack(thread_id=1, name="MainThread", is_main=True, frames=(frames[0], *frames))
    page = backtrace_html(Backtrace(pid=1, source="agent", threads=(thread,)))
    assert page.index("train.py") < page.index("2 frames of libraries") < page.rindex("in f0")


def test_every_answer_has_its_way_to_be_shown() -> None:
    """A kind of answer that nobody thought of would be shown as its `repr`."""
    assert asynchronous
    assert ranks
    for name in texts._TEXTS:
        assert name not in shown._SHOWN or name in {"Backtrace", "MemoryReport"}
    known = {*texts._TEXTS, *shown._SHOWN}

    def kinds(of: type) -> set[str]:
        below: list[type] = of.__subclasses__()
        return {name for kind in below for name in (kind.__name__, *kinds(kind))}

    assert kinds(InNotebooks) - known <= {"Answer", "UnionAnswer"}, "they are Rows"


def test_a_completion_waits_longer_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As whatever asks a live process does, else Tab would offer nothing of one that is slow."""
    completion = pytest.importorskip("probing.cli.notebook.completion")
    asked: list[float] = []

    def connect(endpoint: str, *, timeout_s: float) -> None:
        asked.append(timeout_s)
        raise NotAnswering(endpoint, timeout_s)

    monkeypatch.setattr(connecting, "connect", connect)
    for crowding in (0, 3):
        load = crowding * (os.cpu_count() or 1)
        monkeypatch.setattr(limits, "_load", lambda load=load: load)
        assert completion._tables("4242") is TABLES
        with pytest.raises(NotAnswering):
            completion._offer("%%probing 4242\noptimizer.", 25, None)
    assert asked == [2, 2, 6, 6]
