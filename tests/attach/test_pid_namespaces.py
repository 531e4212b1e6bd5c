"""A process in a pid namespace of its own, asked from outside of it and from beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.client.connecting import connect
from probing.linux import process
from probing.rundir.folders import ProcessFolder, RunDirectory
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


def _folder(target: Target) -> ProcessFolder:
    """Its run folder, once its agent answers."""
    directory = RunDirectory(target.home)
    wait_until(lambda: any(one.is_listened_to() for one in directory.folders()), "its agent")
    (folder,) = directory.folders()
    return folder


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
    trace = asked.backtrace()
    assert (trace.pid, trace.source) == (folder.pid, "agent")
    assert folder.pid in {thread.thread_id for thread in trace.threads}


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
