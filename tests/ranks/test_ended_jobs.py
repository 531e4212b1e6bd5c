"""Jobs that have wholly ended are found by what is left of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from probing.cluster.job.members import Membership, find_members
from probing.errors import NoSuchProcess
from probing.linux import process
from probing.messages.card import Card
from probing.reach.endpoint import Local, resolve
from probing.rundir.elders import is_helper
from probing.rundir.folders import RunDirectory

pytestmark = pytest.mark.anypython

GONE = 2**22 + 1
"""Above all pids that there can be."""

Leave = Callable[..., RunDirectory]


@pytest.fixture
def leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Leaves the card of a process in a run directory that commands look into."""
    directory = RunDirectory(tmp_path / "home")
    monkeypatch.setenv("PROBING_HOME", str(directory.path))

    def leave(pid: int, **facts: object) -> RunDirectory:
        start_time = process.start_time(pid) or 1
        found = {
            "pid": pid, "start_time": start_time, "boot_id": process.boot_id(),
            "host": os.uname().nodename, "pid_namespace": process.pid_namespace(),
            "uid": os.getuid(), "command": ("train.py",), "executable": "", "python": "",
            "version": "", "started_ns": pid, "rank": None, "local_rank": None,
            "world_size": None, **facts,
        }  # fmt: skip
        directory.create_folder(pid, start_time).write_card(Card(**found))  # type: ignore[arg-type]
        return directory

    return leave


def leave_job(leave: Leave, job: str, first: int, **facts: object) -> None:
    """Leave two ranks of a job, of the pids from the first on."""
    for rank in range(2):
        leave(first + rank, rank=rank, world_size=2, job=job, **facts)


def pids(membership: Membership) -> list[int | None]:
    """The processes that were found, by rank."""
    return [member.pid for member in membership.members]


@pytest.mark.parametrize("words", ["all", "job:late", "rank:0-1"])
def test_the_last_job_is_found_when_it_has_ended(leave: Leave, words: str) -> None:
    """Whatever else has ended beside it: its ranks are asked, and a note says that it has ended."""
    leave_job(leave, "early", GONE)
    leave_job(leave, "late", GONE + 10)
    leave(GONE + 20)
    found = find_members([words])
    assert pids(found) == [GONE + 10, GONE + 11]
    assert found.notes == ("job late has ended: what was recorded is what answers",)


def test_a_child_of_a_rank_that_has_ended_is_no_rank(leave: Leave) -> None:
    """It inherited the rank and came later, and neither stands for it nor is of another run."""
    leave_job(leave, "late", GONE)
    leave(GONE + 5, rank=1, world_size=2, job="late", parent=GONE + 1)
    found = find_members(["job:late"])
    assert pids(found) == [GONE, GONE + 1]
    assert found.notes == ("job late has ended: what was recorded is what answers",)


@pytest.mark.parametrize("is_alive", [True, False])
def test_ranks_that_a_launcher_does_not_know_of(leave: Leave, *, is_alive: bool) -> None:
    """They have inherited SLURM's rank 0 of 1, as has who started them, and a worker of rank 1."""
    with ExitStack() as stack:
        live = [_sleeping(stack) if is_alive else GONE + number for number in range(3)]
        first = os.getpid() if is_alive else GONE + 3
        leave(first, rank=0, world_size=1, job="77", started_ns=1)
        leave(live[0], rank=0, world_size=2, job="77", started_ns=2, parent=first)
        directory = leave(live[1], rank=1, world_size=2, job="77", started_ns=3, parent=first)
        rank_0 = resolve("job:77/rank:0", directory)
        leave(live[2], rank=0, world_size=1, job="77", started_ns=4, parent=live[1])
        found = find_members(["job:77"])
    assert isinstance(rank_0, Local)
    assert [rank_0.folder.pid, *pids(found)] == [live[0], *live[:2]]
    assert len(found.notes) == (0 if is_alive else 1), found.notes


@pytest.mark.parametrize("is_alive", [True, False])
@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_rank_that_trains_starts_is_no_rank(
    leave: Leave, rank: int, *, is_alive: bool
) -> None:
    """As the workers of an inference engine: they are more than the ranks, and rank 1 is none."""
    with ExitStack() as stack:
        live = [_sleeping(stack) if is_alive else GONE + number for number in range(3)]
        first = os.getpid() if is_alive else GONE + 3
        both = {"world_size": 2, "job": "rl", "has_trained": True}
        leave(first, rank=0, started_ns=1, **both)
        directory = leave(live[0], rank=1, started_ns=2, parent=first, **both)
        of_engine = {"rank": rank, "world_size": 4, "job": "rl", "has_trained": True}
        leave(live[1], started_ns=3, parent=first, **of_engine)
        above = first if is_alive else live[1]
        leave(live[2], started_ns=4, parent=above, **{**of_engine, "rank": 3})
        found = find_members(["job:rl"])
        rank_0 = None if rank == 0 else resolve("job:rl/rank:0", directory)
    assert pids(found) == [first, live[0]]
    assert rank_0 is None or (isinstance(rank_0, Local) and rank_0.folder.pid == first)


@pytest.mark.parametrize(
    ("facts", "group_size", "expected"),
    [
        ({"has_trained": True}, 4, True),
        ({"has_trained": True}, 2, False),
        ({"has_trained": False}, 4, False),
        ({"has_trained": True, "rank": None}, 4, False),
    ],
)
def test_a_process_knows_that_a_rank_has_started_it(
    leave: Leave, facts: dict[str, object], group_size: int, *, expected: bool
) -> None:
    """One that trains, of another group than its own; not a launcher, and not its fellow."""
    directory = leave(os.getppid(), **{"rank": 0, "world_size": 2, **facts})
    assert is_helper(directory.folder_for(os.getpid(), 1), group_size) is expected


def _sleeping(stack: ExitStack) -> int:
    """A child that waits for its end."""
    child = stack.enter_context(subprocess.Popen(["sleep", "600"]))
    stack.callback(child.kill)
    return child.pid


def test_an_ended_job_is_found_beside_what_runs(leave: Leave) -> None:
    """By its name or its ranks; `all` are those that run, and of another job nothing is told."""
    leave_job(leave, "early", GONE)
    leave(os.getpid())
    assert pids(find_members(["job:early"])) == [GONE, GONE + 1]
    assert pids(find_members(["rank:0,1"])) == [GONE, GONE + 1]
    running = find_members(["all"])
    assert (pids(running), running.notes) == ([os.getpid()], ())


def test_a_rank_whose_job_goes_on_is_no_ended_job(leave: Leave) -> None:
    """A dead rank of a job that runs is asked as part of it, and nobody says the job is over."""
    leave(GONE, rank=0, world_size=2, job="mine")
    leave(os.getpid(), rank=1, world_size=2, job="mine")
    for words in ("all", "job:mine", "rank:0,1"):
        found = find_members([words])
        assert (pids(found), found.notes) == ([GONE, os.getpid()], ())


def test_without_a_job_the_last_process_is_found(leave: Leave) -> None:
    """Of single processes that have all ended the one that started last answers for `all`."""
    leave(GONE)
    leave(GONE + 1)
    found = find_members(["all"])
    note = f"process {GONE + 1} has ended: what was recorded is what answers"
    assert (pids(found), found.notes) == ([GONE + 1], (note,))


def test_one_rank_is_found_when_it_has_ended(leave: Leave) -> None:
    """`rank:1` is the record of the last process of that rank where none runs."""
    leave_job(leave, "early", GONE)
    leave_job(leave, "late", GONE + 10)
    directory = leave(GONE + 30, rank=7, host="elsewhere", boot_id="another")
    place = resolve("rank:1", directory)
    assert isinstance(place, Local)
    assert place.folder.pid == GONE + 11
    for unknown in ("rank:5", "rank:7"):
        with pytest.raises(NoSuchProcess):
            resolve(unknown, directory)


def test_records_of_another_boot_have_ended(leave: Leave) -> None:
    """Of this machine's; those of a machine that shares the run directory may still run."""
    leave_job(leave, "before", GONE, boot_id="another")
    leave_job(leave, "there", GONE + 10, boot_id="another", host="elsewhere")
    assert pids(find_members(["all"])) == [GONE, GONE + 1]
    with pytest.raises(NoSuchProcess):
        find_members(["job:there"])
