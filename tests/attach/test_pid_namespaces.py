"""A process in a pid namespace of its own, asked from outside of it and from beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.client.connecting import connect
from probing.errors import NotProbed, NotPython
from probing.history.naming import process_name, run_alone
from probing.linux import process
from probing.reach.endpoint import resolve
from probing.rundir import numbers
from probing.rundir.contained import called_so_inside, way_to_attach
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.rundir.node_card import NodeCard, read_node, write_node
from tests.harness.cards import card_of
from tests.harness.stacks import taken_by
from tests.harness.targets import ROOT, Target, clean_env, wait_until

pytestmark = pytest.mark.anypython

_ANEW = ("--pid", "--mount", "--fork", "--mount-proc", "--kill-child")
_WAYS = {
    "root": ("unshare", *_ANEW),
    "user": ("unshare", "--user", "--map-root-user", *_ANEW),
}
_LOOK = """
import os
from probing.client.listing import list_processes
from probing.rundir.folders import from_env
from probing.rundir.pruning import prune
for one in from_env().folders():
    for entry in one.path.iterdir():
        os.utime(entry, (0, 0), follow_symlinks=False)
print([one.state for one in list_processes(dead=True)])
print(len(prune(from_env(), keep_hours=1, keep_bytes=0)))
"""


@pytest.fixture(params=_WAYS)
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """How a pid namespace is made."""
    words = _WAYS[request.param]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    done = subprocess.run([*words, "true"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"unshare: {done.stderr.strip()}")
    return words


@pytest.fixture
def contained(way: tuple[str, ...], tmp_path: Path) -> Iterator[Target]:
    """An idle process with an agent, in a pid namespace of its own."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    script = ROOT / "tests" / "programs" / "idle.py"
    argv = [*way, sys.executable, "-m", "probing._run", str(script)]
    target = Target(argv, home, tmp_path, PROBING="all")
    target.wait_for_output("ready")
    yield target
    target.reap()


@pytest.fixture
def apart(way: tuple[str, ...], tmp_path: Path) -> Iterator[Target]:
    """The same in a container whose run directory is its own, under the name of an empty one."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    script = ROOT / "tests" / "programs" / "idle.py"
    line = 'mount -t tmpfs -o mode=700 none "$0" && exec "$@"'
    within = ("sh", "-c", line, str(home))
    argv = [*way, *within, sys.executable, "-m", "probing._run", str(script)]
    target = Target(argv, home, tmp_path, PROBING="all")
    target.wait_for_output("ready")
    yield target
    target.reap()


def _folder(target: Target) -> ProcessFolder:
    """Its run folder, once its agent answers."""
    directory = RunDirectory(target.home)
    wait_until(lambda: any(one.is_listened_to() for one in directory.folders()), "its agent")
    (folder,) = directory.folders()
    return folder


def _last_child(pid: int) -> list[int]:
    """The last of the processes that each began the next, where it runs Python."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if children:
        return _last_child(int(children[0]))
    return [pid] if process.is_python(pid) else []


def test_a_process_of_another_pid_namespace_is_asked_by_its_pid_here(
    contained: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder has its own number, 1, and its namespace, which others may have, too."""
    folder = _folder(contained)
    card = folder.read_card()
    assert card is not None
    assert folder.path.name == f"1-{folder.start_time}-{card.pid_namespace}"
    assert process.status(folder.pid)["NSpid"].split() == [str(folder.pid), "1"]
    assert folder.is_alive()
    assert RunDirectory(contained.home).folder_for(folder.pid, folder.start_time) == folder
    monkeypatch.setenv("PROBING_HOME", str(contained.home))
    asked = connect(folder.pid)
    assert asked.status().pid == folder.pid
    trace = taken_by("agent", asked.backtrace)
    assert trace.pid == folder.pid
    assert folder.pid in {thread.thread_id for thread in trace.threads}


def test_by_its_own_pid_it_is_told_which_it_has_here(contained: Target) -> None:
    """Pid 1 here is another process, which runs no Python; so is a pid that nobody has here."""
    folder = _folder(contained)
    directory = RunDirectory(contained.home)
    assert called_so_inside(1, directory) == [folder.pid]
    assert called_so_inside(folder.pid, directory) == []
    if process.is_python(1):
        pytest.skip("pid 1 runs Python here")
    with pytest.raises(NotPython) as caught:
        resolve(1, directory)
    assert f"`probing {folder.pid} ...`" in str(caught.value.help)


def test_a_run_directory_of_its_own_is_asked_through_its_root(
    apart: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be attached from here; the sentence names where its agent is found."""
    (pid,) = wait_until(lambda: _last_child(apart.pid), "the process in the container")
    its = Path(f"/proc/{pid}/root{apart.home}")
    wait_until(
        lambda: any(one.is_listened_to() for one in RunDirectory(its).folders()), "its agent"
    )
    monkeypatch.setenv("PROBING_HOME", str(apart.home))
    with pytest.raises(NotProbed, match="it runs in a container") as caught:
        connect(pid).query("SELECT 1")
    assert f"`PROBING_HOME={its} probing {pid} ...`" in str(caught.value.help)
    monkeypatch.setenv("PROBING_HOME", str(its))
    assert connect(pid).status().pid == pid


def test_the_way_in_works(apart: Target, way: tuple[str, ...]) -> None:
    """The command that attaches enters the user namespace where there is one, and gets there."""
    (pid,) = wait_until(lambda: _last_child(apart.pid), "the process in the container")
    words, _, _ = way_to_attach(pid).partition("probing attach 1")
    assert ("--user" in words) == ("--user" in way)
    done = subprocess.run([*words.split(), "sh", "-c", "echo $$ && ls /proc"], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"\n1\n" in done.stdout


def test_a_node_server_of_another_pid_namespace_is_not_ours(tmp_path: Path) -> None:
    """Who has its pid here, and began with it, is another one."""
    directory, ours = RunDirectory(tmp_path), process.pid_namespace()
    started = process.start_time(os.getpid()) or 0
    for namespace, is_ours in ((ours, True), (0, True), (ours + 1, False)):
        card = NodeCard(
            pid=os.getpid(), start_time=started, listen="127.0.0.1:9741", pid_namespace=namespace
        )
        write_node(directory, card)
        assert read_node(directory) == (card if is_ours else None)


def test_containers_with_one_host_name_are_several_processes_of_a_history() -> None:
    """Their pids, and the moments they began at, may be the same ones."""
    names = [
        {
            of(card_of(1, 7, started_ns=10**18, pid_namespace=one))
            for of in (process_name, run_alone)
        }
        for one in (numbers.FIRST, 4026532178, 4026532179)
    ]
    assert len(set.union(*names)) == 6
    assert "node1-1-20010909T014640" in names[0]


def test_a_process_that_cannot_be_seen_is_neither_dead_nor_pruned(
    contained: Target, way: tuple[str, ...], tmp_path: Path
) -> None:
    """Of two containers that share a run directory, none sees the other's process."""
    folder = _folder(contained)
    done = subprocess.run(
        [*way, sys.executable, "-c", _LOOK],
        capture_output=True, text=True, cwd=tmp_path, env=clean_env(contained.home),
    )  # fmt: skip
    assert done.stdout.split("\n")[:2] == ["['elsewhere']", "0"], done.stderr
    assert folder.is_alive()
