"""What is drawn on a terminal, and what is not where TERM says that it only prints."""

from __future__ import annotations

import io
import sys

import pytest

from probing.cli.output import terminal
from probing.cli.target import Target
from probing.cli.watch.repeating import Repeated, repeat

pytestmark = pytest.mark.anypython


class Terminal(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.mark.parametrize(
    ("term", "is_drawn"), [("xterm", True), ("dumb", False), ("", False), (None, False)]
)
def test_nothing_is_drawn_where_nothing_can_be(
    term: str | None, is_drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks follow each other there, and nobody is told what is waited for."""
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    looks: list[str] = []

    def look() -> None:
        if looks:
            raise KeyboardInterrupt
        looks.append("made")
        terminal.write("an answer")

    terminal.begin()
    terminal.start_waiting()
    assert (terminal.ways.waiting is not None) == is_drawn
    terminal.stop_waiting()
    terminal.progress("half of it")
    terminal.progress("")
    what = Repeated(command="probing list", form="table", has_file=False, target=Target())
    with pytest.raises(KeyboardInterrupt):
        repeat(look, what, 0.1)
    assert "an answer" in out.getvalue()
    assert ["\x1b" in stream.getvalue() for stream in (out, err)] == [is_drawn, is_drawn]
