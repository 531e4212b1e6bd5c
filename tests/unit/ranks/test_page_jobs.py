"""Whom the page asks when it is asked about all ranks of a job, from looks made by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from probing.cli.reports.rank_grid import RankGrid
from probing.cluster.job.membership import Member, missing_member
from probing.errors import NoSuchProcess
from probing.rundir.folders import RunDirectory
from probing.web.processes import Processes, Target, _with_ended
from tests.harness.cards import card_of
from tests.unit.cli.test_top_view import cell

pytestmark = pytest.mark.anypython


def ranks_asked(now: list[Member], folder: Path, endpoint: str) -> list[tuple[int | None, int]]:
    """Rank and pid of all of the job of a process, of those of now and one that has ended."""
    page = Processes(Target(endpoints=("all",), token=None, timeout_s=1.0))
    page._members, page._ended = now, [{"endpoint": str(folder)}]
    return [(m.rank, m.pid or 0) for m in page.job_of(endpoint)]


def member(rank: int, pid: int, *, job: str = "gpt") -> Member:
    """One that runs."""
    return Member(
        rank=rank, host="h", pid=pid, world_size=2, job=job, endpoint=f"/{pid}", is_alive=True
    )


def test_an_ended_rank_has_a_job(tmp_path: Path) -> None:
    """It is asked in place of the missing one, and alone where another process has its rank."""
    folder = RunDirectory(tmp_path).create_folder(7, 1)
    folder.write_card(card_of(7, 1, rank=1, world_size=2, job="gpt"))
    missing = missing_member(1, job="gpt", world_size=2, attempt=0)
    others = [member(0, 5), member(0, 9, job="else")]
    own = str(folder.path)
    assert ranks_asked([*others, missing], folder.path, own) == [(1, 7), (0, 5)]
    assert ranks_asked([*others, member(1, 8)], folder.path, own) == [(1, 7)]
    assert ranks_asked([*others, member(1, 8)], folder.path, "/5") == [(0, 5), (1, 8)]
    with pytest.raises(NoSuchProcess):
        ranks_asked(others, folder.path, "/nobody")


def test_who_is_seen_no_more_is_asked_unless_its_rank_is_another_process() -> None:
    """After a restart only the new ranks are a job; one that is gone is not missing, too."""
    missing = missing_member(1, job="gpt", world_size=2, attempt=0)

    def seen(*looks: list[Member]) -> list[tuple[int | None, int | None, bool | None]]:
        members: tuple[Member, ...] = ()
        for now in looks:
            members = _with_ended(members, now)
        return [(m.rank, m.pid, m.is_alive) for m in members]

    old, new = [member(0, 5), member(1, 6)], [member(0, 7), member(1, 8)]
    assert seen(old, new) == [(0, 7, True), (1, 8, True)]
    assert seen(old, [member(0, 5), missing]) == [(0, 5, True), (1, 6, False)]
    assert seen([member(0, 5), missing], old) == [(0, 5, True), (1, 6, True)]
    assert seen(old, [], [member(0, 9, job="else")])[1:] == [(0, 5, False), (1, 6, False)]


def test_nobody_answers_any_more() -> None:
    """The page says so of each process, and why, and does not keep what it saw last."""
    page = Processes(Target(endpoints=("127.0.0.1:1",), token=None, timeout_s=1.0))
    cells = (cell(0, endpoint="http://127.0.0.1:1/v1/ranks/1-1"), cell(1))
    page._grid = RankGrid(label="job big", expected=2, cells=cells)
    seen = page.seen()
    assert "127.0.0.1:1" in seen["trouble"]
    told = [(one["rank"], one["state"], one["is_late"]) for one in seen["processes"]]
    assert told == [(0, "not answering", True), (1, "dead", False)]


def test_a_member_whose_node_is_late_has_not_ended() -> None:
    """As of the cells."""
    far, near = (
        dataclasses.replace(member(rank, rank), endpoint=f"http://b:1/v1/ranks/{rank}-1")
        for rank in (0, 1)
    )
    here = member(2, 2)
    silent = dataclasses.replace(missing_member(0, job=None, world_size=None, attempt=0),
                                 rank=None, endpoint="b:1")  # fmt: skip
    now = _with_ended([far, near, here], [here, silent])
    late = {m.rank: m.is_alive for m in now if m.rank is not None}
    assert late == {0: True, 1: True, 2: True}
    ended = {m.rank: m.is_alive for m in _with_ended([far, near, here], [here])}
    assert ended == {0: False, 1: False, 2: True}
    alone = dataclasses.replace(member(0, 9), rank=None, job=None)
    assert [m.endpoint for m in _with_ended([alone], [silent])] == ["b:1", "/9"]
