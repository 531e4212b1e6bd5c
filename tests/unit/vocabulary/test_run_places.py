"""Run folders where another environment leads to, and those that were removed in use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent import lifecycle
from probing.agent.listener import attend
from probing.attach.attach import attach
from probing.client.listing import list_processes, summarize_stranger
from probing.client.transports import _no_agent
from probing.cluster.job.providers.this_machine import members_here
from probing.cluster.node.roster import Roster
from probing.linux import process
from probing.reach.endpoint import Local, Stranger, resolve
from probing.rundir.folders import ProcessFolder, RunDirectory, from_env
from probing.rundir.pruning import given_up, overdue, prune
from probing.rundir.removed import removal
from probing.server.liveness import has_gone
from probing.server.sockets import bind_unix
from probing.settings import Settings
from tests.harness.targets import DEADLINE_S
from tests.unit.vocabulary.test_run_folders import card_of

pytestmark = pytest.mark.anypython

_NO_PID = 1 << 22  # the kernel gives none that is as large


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A login's run directory, beside which a batch system's may be."""
    login, batch = tmp_path / "login", tmp_path / "batch"
    for place in (login, batch):
        place.mkdir(mode=0o700)
    return RunDirectory(login, others=(batch,))


def made(place: Path, pid: int, started: int) -> ProcessFolder:
    """A folder with a card."""
    folder = RunDirectory(place).create_folder(pid, started)
    folder.write_card(card_of(folder))
    return folder


def test_another_environment_leads_to_other_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login looks where cron's processes are, and the other way; not with PROBING_HOME."""
    (in_memory, in_tmp) = (Path(f"{base}/probing-{os.getuid()}") for base in ("/dev/shm", "/tmp"))
    monkeypatch.delenv("PROBING_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert from_env().path == tmp_path / "probing"
    assert {in_memory, in_tmp} <= set(from_env().others)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    login = Path(f"/run/user/{os.getuid()}")
    assert (login / "probing" in from_env().others) == login.is_dir()
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    tmp_path.chmod(0o700)
    assert from_env() == RunDirectory(tmp_path)


def test_those_of_another_place_are_found(directory: RunDirectory) -> None:
    """By whoever lists, by pid, by name and rank of a node server, and as what was given up."""
    (batch,) = directory.others
    own = made(batch, os.getpid(), process.start_time(os.getpid()) or 0)
    ended = made(batch, _NO_PID, 7)
    assert {folder.path for folder in directory.folders()} == {own.path, ended.path}
    assert resolve(os.getpid(), directory) == Local(folder=own)
    assert resolve(_NO_PID, directory) == Local(folder=ended)
    assert {member.endpoint for member in members_here(directory)} == {
        str(own.path),
        str(ended.path),
    }
    roster = Roster(directory, lambda _: None)
    assert roster.folder(own.path.name) == own
    assert roster.alive() == [own]
    prune(RunDirectory(batch), keep_hours=0, keep_bytes=0)
    assert [one.pid for one in given_up(directory)] == [_NO_PID]
    batch.chmod(0o777)  # whoever may write there may have written what is there
    assert directory.folders() == []
    assert resolve(os.getpid(), directory) == Stranger(pid=os.getpid())


def test_a_process_with_folders_in_two_places_is_one(directory: RunDirectory) -> None:
    """Its newer agent's counts, and not what an attach from elsewhere has begun without one."""
    (batch,) = directory.others
    started = process.start_time(os.getpid()) or 0
    old, new = made(directory.path, os.getpid(), started), made(batch, os.getpid(), started)
    os.utime(old.path, (1, 1))
    assert directory.folders() == [new]
    assert resolve(os.getpid(), directory) == Local(folder=new)
    (old.path / "card.json").unlink()
    os.utime(new.path, (0, 0))
    assert directory.folders() == [new]
    assert resolve(os.getpid(), directory) == Local(folder=new)


def test_an_agent_of_another_place_is_not_put_in_again(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`attach` finds the one that is there."""
    (batch,) = directory.others
    own = made(batch, os.getpid(), process.start_time(os.getpid()) or 0)
    monkeypatch.setattr("probing.attach.attach.directory_of", lambda _: directory)
    monkeypatch.setattr("probing.attach.attach._PING_S", 0.05)
    with bind_unix(own.socket):
        assert attach(os.getpid()).folder == own
    assert not (directory.path / own.path.name).exists()


_MAPS = """
import mmap, sys
with open(sys.argv[1], "w+b") as file:
    file.truncate(4096)
    kept = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True)
input()
kept.close()
print("closed", flush=True)
input()
"""


def test_a_folder_that_was_removed_under_its_agent_is_told(tmp_path: Path) -> None:
    """As long as its rings are mapped; who asks learns what happened and what to do."""
    ring = tmp_path / "steps.ring"
    argv = [sys.executable, "-c", _MAPS, str(ring)]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as its:
        assert its.stdin is not None
        assert its.stdout is not None
        assert its.stdout.readline() == "mapped\n"
        folder = made(tmp_path / "home", its.pid, process.start_time(its.pid) or 0)
        folder.held.touch()
        ring.rename(folder.ring("steps"))
        assert (removal(its.pid), has_gone(folder)) == (None, False)
        shutil.rmtree(folder.path)
        folder.path.mkdir()  # as whoever attaches does
        assert has_gone(folder)
        error = _no_agent(its.pid)
        assert f"{folder.path} was removed while it ran" in error.message
        assert f"`probing attach {its.pid}`" in error.help
        seen = summarize_stranger(its.pid)
        assert seen is not None
        assert "was removed while it ran" in seen.problems[0]
        its.stdin.write("\n")
        its.stdin.flush()
        assert its.stdout.readline() == "closed\n"
        assert removal(its.pid) is None
        its.kill()


def test_the_folder_is_looked_at_every_minute() -> None:
    """Also where nothing else is due for hours or at all, and where what is due fails."""
    looks: list[int] = []

    def wait_s(agent: Any) -> float:
        return attend(agent, lambda: looks.append(1))

    for due_s, expected in ((None, 60), (7200.0, 60), (3.0, 3), (0.0, 0)):
        assert wait_s(SimpleNamespace(keep_environment=lambda due_s=due_s: due_s)) == expected
    assert wait_s(SimpleNamespace()) == 60
    assert len(looks) == 5


@pytest.mark.parametrize(("in_force", "is_begun"), [([], True), (["clip (action 1)"], False)])
def test_no_action_in_force_is_ended_for_a_new_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_force: list[str],
    is_begun: bool,
) -> None:
    """Each rank would end it at another step: who attaches has it end. That is told, once."""
    begun = threading.Event()
    folder = made(tmp_path, _NO_PID, 7)
    agent = SimpleNamespace(folder=folder, problems=[], in_force=lambda: in_force)
    monkeypatch.setattr(lifecycle, "_running", SimpleNamespace(agent=agent))
    monkeypatch.setattr(lifecycle, "renew", begun.set)
    for _ in range(2):
        lifecycle._renew_soon()
        assert begun.wait(DEADLINE_S if is_begun else 0) == is_begun
    assert len(agent.problems) == len(in_force)


def test_a_record_that_is_kept_no_longer_is_not_listed(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there until somebody prunes, as a node server does; one that may live is listed."""
    (batch,) = directory.others
    old, new, alive = (
        made(directory.path, _NO_PID, 7), made(batch, _NO_PID, 8),
        made(batch, os.getpid(), process.start_time(os.getpid()) or 0),
    )  # fmt: skip
    for folder in (old, alive):
        os.utime(folder.path / "card.json", (1, 1))
    monkeypatch.setattr("probing.client.listing.from_env", lambda: directory)
    listed = {one.folder for one in list_processes(dead=True)}
    assert listed == {str(new.path), str(alive.path)}
    assert overdue(directory.folders()) == [old]
    monkeypatch.setenv("PROBING_KEEP_HOURS", "999999")
    assert overdue(directory.folders()) == []
    Roster(directory, lambda _: None).prune(Settings())
    assert {folder.path for folder in directory.folders()} == {new.path, alive.path}
