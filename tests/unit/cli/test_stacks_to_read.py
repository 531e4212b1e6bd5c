"""Stacks for people: the main thread last, idle threads a line each, libraries folded."""

from __future__ import annotations

import pytest

from probing.cli.render.process.stacks import fold_frames, render_backtrace
from probing.messages.common import Backtrace, Frame, ThreadStack

pytestmark = pytest.mark.anypython

TORCH = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
STANDARD = "/usr/lib/python3.11/threading.py"
OWN = "/home/me/train.py"
PACKAGE = "/venv/lib/python3.11/site-packages/my_models/gpt.py"


def frames(*files: str) -> tuple[Frame, ...]:
    """Frames of these files, outermost first."""
    return tuple(
        Frame(func=f"f{number}", file=file, lineno=number, line="do()")
        for number, file in enumerate(files)
    )


def thread(number: int, name: str, *files: str, waiting: str | None = None) -> ThreadStack:
    """A thread in these files, outermost first."""
    return ThreadStack(
        thread_id=number,
        name=name,
        is_main=name == "MainThread",
        frames=frames(*files)[::-1],
        waiting=waiting,
    )


TRACE = Backtrace(
    pid=7,
    source="agent",
    threads=(
        thread(7, "MainThread", OWN, TORCH, TORCH, OWN, STANDARD, TORCH, STANDARD),
        thread(8, "feeder", STANDARD, STANDARD, waiting="idle: a queue's thread"),
        thread(9, "mine", STANDARD, STANDARD, STANDARD, OWN),
    ),
)


def test_the_main_thread_is_last() -> None:
    """It stands above the prompt, whatever others there are."""
    for is_whole in (False, True):
        shown = render_backtrace(TRACE, is_whole=is_whole)
        places = [shown.index(f'"{name}"') for name in ("mine", "MainThread")]
        assert places == sorted(places)
        assert shown.index('"feeder"') < places[1]


def test_a_long_name_leaves_the_heading_to_be_read() -> None:
    """A name of 50,000 characters is cut in its middle."""
    trace = Backtrace(pid=7, source="agent", threads=(thread(8, f"a{'n' * 50_000}z", OWN),))
    heading = render_backtrace(trace).split("\n")[2]
    assert heading.startswith('Thread 8 "ann')
    assert heading.endswith('nz"')
    assert len(heading) < 120


def test_an_idle_thread_is_one_line() -> None:
    """It has no stack that anybody looks for; -v shows it."""
    lines = render_backtrace(TRACE).split("\n")
    at = next(i for i, line in enumerate(lines) if '"feeder"' in line)
    assert lines[at].endswith(": idle: a queue's thread")
    assert lines[at + 1] == ""
    assert render_backtrace(TRACE, is_whole=True).count(STANDARD) == 7


def test_the_first_line_says_how_to_see_the_rest() -> None:
    """Where something is folded, and only there."""
    assert "-v unfolds" in render_backtrace(TRACE).split("\n")[0]
    assert "-v" not in render_backtrace(TRACE, is_whole=True)
    own = Backtrace(pid=7, source="agent", threads=(thread(7, "MainThread", OWN),))
    assert "-v" not in render_backtrace(own)


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ((OWN, TORCH, TORCH, OWN), ["f0", "… 2 frames in torch", "f3"]),
        ((OWN, TORCH, OWN), ["f0", "f1", "f2"]),
        ((OWN, TORCH, TORCH), ["f0", "f1", "f2"]),
        ((OWN, TORCH, STANDARD, TORCH),
         ["f0", "… 2 frames in torch and the standard library", "f3"]),
        ((STANDARD, STANDARD, STANDARD), ["… 2 frames in the standard library", "f2"]),
        ((OWN, PACKAGE, PACKAGE, OWN), ["f0", "f1", "f2", "f3"]),
        ((OWN, "<frozen runpy>", "<frozen runpy>", OWN),
         ["f0", "… 2 frames in the standard library", "f3"]),
        ((), []),
    ],
)  # fmt: skip
def test_runs_of_libraries_are_folded(files: tuple[str, ...], shown: list[str]) -> None:
    """The innermost frame always stands, and so does one by itself and what may be one's own."""
    lines = [line for line in fold_frames(frames(*files)) if not line.startswith("    ")]
    assert [line.strip().rpartition(", in ")[2] for line in lines] == shown


def test_own_lines_stand_out() -> None:
    """With colours they are bold, and what is folded is faint."""
    lines = fold_frames(frames(OWN, TORCH, TORCH, OWN), color=True)
    assert lines[0].startswith("\x1b[1m")
    assert any(line.startswith("\x1b[2m  … 2 frames") for line in lines)


def test_no_name_of_a_frame_steers_the_terminal() -> None:
    """Control characters of the process are written out in what is folded, too."""
    trace = Backtrace(
        pid=7, source="agent", threads=(thread(7, "MainThread", "/x\x1b[2J.py", TORCH, TORCH, OWN),)
    )
    assert "\x1b" not in render_backtrace(trace)
