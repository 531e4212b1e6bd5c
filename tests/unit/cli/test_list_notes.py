"""What `probing list` says beside its table stays short, however many processes there are."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.cli import main
from probing.cli.commands.list_ import _tell_problems
from probing.client import listing
from probing.errors import Busy, NoSuchProcess, NotAnswering
from probing.linux import process
from probing.messages import limits
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.cards import card_of

NOBODY = 2**22 + 1
"""The number of no process."""


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


def test_the_ranks_of_a_job_are_among_themselves_where_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What else runs there is not the job's, and does not hide that this has ended."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    directory = RunDirectory(tmp_path / "home")
    here = process.start_time(os.getpid())
    assert here is not None
    for pid, start_time, place in (
        (NOBODY, 1, {"rank": 0, "world_size": 3, "job": "x"}),
        (NOBODY, 2, {"rank": 1, "world_size": 3, "job": "x"}),
        (NOBODY, 3, {"rank": 0, "world_size": 2, "job": "y"}),
        (os.getpid(), here, {}),
    ):
        folder = directory.create_folder(pid, start_time)
        folder.write_card(card_of(pid, start_time, **place))
    assert main.run(["-t", "all", "list", "--job", "x"]) == 0
    told = capsys.readouterr()
    head, _, _, *rows = told.out.splitlines()
    assert head == "job x: 2 of 3 ranks seen"
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    assert "jobs" not in told.err
    assert main.run(["-t", "all", "list", "--job", "z"]) == NoSuchProcess.exit_code
    assert "there is no process of job z for all" in capsys.readouterr().err


@pytest.mark.parametrize(("crowding", "state"), [(1, "not answering"), (3, "idle")])
def test_a_slow_answer_is_none_only_where_processors_are_free(
    crowding: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a process that waits for its turn is not told as one that hangs."""
    here, load = process.start_time(os.getpid()), crowding * (os.cpu_count() or 1)
    assert here is not None
    folder = RunDirectory(tmp_path / "home").create_folder(os.getpid(), here)
    folder.write_card(card_of(os.getpid(), here))

    def answer_after_a_second(_: ProcessFolder, *, timeout_s: float) -> None:
        if timeout_s < 1.0:
            raise NotAnswering("it", timeout_s)

    monkeypatch.setattr(limits, "_load", lambda: load)
    monkeypatch.setattr(listing, "ping", answer_after_a_second)
    assert listing.summarize(folder).state == state


def test_one_that_is_asked_by_many_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent at its limit of requests answers, and hides no other process."""
    here = process.start_time(os.getpid())
    assert here is not None
    folder = RunDirectory(tmp_path / "home").create_folder(os.getpid(), here)
    folder.write_card(card_of(os.getpid(), here))

    def refuse(_: ProcessFolder, *, timeout_s: float) -> None:
        raise Busy("requests", 2)

    monkeypatch.setattr(listing, "ping", refuse)
    assert listing.summarize(folder).state == "idle"
