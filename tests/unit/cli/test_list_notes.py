"""What `probing list` says beside its table stays short, however many processes there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probing.cli.commands.list_ import _tell_problems


def some(count: int) -> Any:
    """So many processes with a problem each, one of them with an obstacle as well."""
    listed = [
        SimpleNamespace(pid=pid, problems=(f"problem {pid}",), obstacle=None)
        for pid in range(count)
    ]
    listed[0].obstacle = "it cannot be looked at"
    return listed


def test_few_problems_are_all_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its process."""
    _tell_problems(some(3))
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == ["note: process 0: problem 0", "note: it cannot be looked at"]
    assert len(told) == 4


def test_of_many_the_first_are(capsys: pytest.CaptureFixture[str]) -> None:
    """With how many there are besides, and how to see them."""
    _tell_problems(some(30))
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 6
    assert told[-1].startswith("note: 26 more notes like these; `probing PID status`")
