"""What a watch leaves in its file, and what a node server makes of that."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from probing.cli.watch.standing import StandingFile
from probing.diagnosis.doctor.findings import Certainty, Finding
from probing.diagnosis.doctor.watching import Event
from probing.messages.about.job import NodeMember
from probing.rundir.standing import findings_of, standing_in

pytestmark = pytest.mark.anypython


def event(rule: str, whole: str, *members: str, certainty: Certainty = "likely") -> Event:
    """A finding that has begun."""
    finding = Finding(
        rule=rule, group="slow", certainty=certainty, summary="It waits.", since_step=None,
        evidence=(), next="", fix="", members=frozenset(members), whole=whole,
    )  # fmt: skip
    return Event(kind="begun", finding=finding, about="all", time_s=1.0, began_s=1.0)


def member(pid: int, rank: int | None = None, job: str | None = None) -> NodeMember:
    """A process of the machine."""
    return NodeMember(
        key=f"{pid}-1", rank=rank, local_rank=rank, world_size=2, job=job, attempt=0, pid=pid,
        host="vm", started_ns=1, is_alive=True,
    )  # fmt: skip


def test_what_stands_is_told_of_whom_it_is_about(tmp_path: Path) -> None:
    """Of a process by its pid, of all ranks of a job or of those named; the surest of a rule."""
    file = StandingFile(str(tmp_path / "f"), 30.0)
    file.write([
        event("data-wait", "process 7"),
        event("hang", "night", certainty="certain"),
        event("memory-grows", "night", "rank 1"),
        event("memory-grows", "night", certainty="possible"),
    ], time.time())  # fmt: skip
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    found = standing_in(tmp_path / "f")
    assert findings_of(member(7), found) == {"data-wait": "likely"}
    assert findings_of(member(8), found) == findings_of(member(8, None, "night"), found) == {}
    assert findings_of(member(7, None, "night"), found) == {"data-wait": "likely"}
    assert findings_of(member(7, 0, "night"), found) == {
        "hang": "certain", "memory-grows": "possible",
    }  # fmt: skip
    assert findings_of(member(8, 1, "night"), found) == {
        "hang": "certain",
        "memory-grows": "likely",
    }
    assert findings_of(member(8, 1, "day"), found) == {}
    assert findings_of(member(7), None) == {}


def test_ranks_of_a_job_without_a_name_have_its_findings(tmp_path: Path) -> None:
    """It is called by its ranks; a job that has a name is another one."""
    file = StandingFile(str(tmp_path / "f"), 30.0)
    file.write([
        event("hang", "ranks 0-1,12", certainty="certain"),
        event("memory-grows", "ranks 0-1,12", "rank 1"),
        event("data-wait", "rank 5"),
    ], time.time())  # fmt: skip
    found = standing_in(tmp_path / "f")
    told = {rank: findings_of(member(7, rank), found) for rank in (0, 1, 2, 5, 12)}
    assert told[0] == told[12] == {"hang": "certain"}
    assert told[1] == {"hang": "certain", "memory-grows": "likely"}
    assert (told[2], told[5]) == ({}, {"data-wait": "likely"})
    assert findings_of(member(7, 1, "night"), found) == findings_of(member(5), found) == {}


def test_a_file_that_is_of_no_use_has_no_findings(tmp_path: Path) -> None:
    """Missing, out of date, damaged; and none is asked for without a watch."""
    path = tmp_path / "f"
    assert standing_in(None) is standing_in(path) is None
    StandingFile(str(path), 30.0).write([event("hang", "process 7")], time.time() - 400)
    assert standing_in(path) is None
    StandingFile(str(path), 200.0).write([event("hang", "process 7")], time.time() - 400)
    assert standing_in(path) is not None
    path.write_bytes(path.read_bytes()[:-9])
    assert standing_in(path) is None
    path.write_text(json.dumps({"time_s": 1, "until_s": "never", "findings": 3}))
    assert standing_in(path) is None


def test_a_place_that_cannot_be_written_to_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The watch goes on."""
    file = StandingFile(str(tmp_path / "no" / "f"), 30.0)
    file.write([], 1.0)
    file.write([], 2.0)
    assert capsys.readouterr().err.count("cannot be written: No such file or directory") == 1
