"""Root asks processes of other users, and does for them what they may do, and no more."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import probing
from probing.attach.attach import attach, written_as_its_user
from probing.errors import AttachFailed, ProbingError, UnsafeRunDirectory
from probing.linux import process
from probing.linux.other_user import acting_as
from probing.linux.process import User
from probing.rundir.folders import directory_of, write_private
from tests.harness.targets import DEADLINE_S, clean_env, program_path, run_command, wait_until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

NOBODY = User(uid=65534, gid=65534, groups=(65533,))
Start = Callable[..., subprocess.Popen[bytes]]


def python_of_nobody() -> str:
    """A Python of this release that another user may run on this code; in root's home none is."""
    for python in (sys.executable, "/usr/bin/python{}.{}".format(*sys.version_info)):
        reads = "import sys; open(sys.argv[1]).close(); print(sys.version_info[:2])"
        asked = [python, "-c", reads, __file__]
        with_rights = {"user": NOBODY.uid, "group": NOBODY.gid, "extra_groups": []}
        try:
            done = subprocess.run(asked, capture_output=True, text=True, check=False, **with_rights)  # type: ignore[call-overload]
        except OSError:
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return python
    pytest.skip("this folder, or every Python of this release, is where only root may look")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may look into, with one of nobody's and one of root's alone."""
    found = Path(tempfile.mkdtemp(prefix="probing-others-"))
    found.chmod(0o755)
    (found / "nobodys").mkdir(0o700)
    os.chown(found / "nobodys", NOBODY.uid, NOBODY.gid)
    (found / "roots").mkdir(0o700)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    """Starts programs of nobody's, which print `ready`."""
    python = python_of_nobody()
    running: list[subprocess.Popen[bytes]] = []

    def begin(program: str, *args: str, home: Path) -> subprocess.Popen[bytes]:
        target = subprocess.Popen(
            [python, str(program_path(program)), *args],
            stdout=subprocess.PIPE,
            env={**clean_env(home), "PYTHONPATH": ""},
            cwd="/",
            user=NOBODY.uid,
            group=NOBODY.gid,
            extra_groups=list(NOBODY.groups),
        )
        running.append(target)
        assert target.stdout is not None
        assert target.stdout.readline() == b"ready\n"
        return target

    yield begin
    for target in running:
        target.kill()
        target.wait(DEADLINE_S)
        assert target.stdout is not None
        target.stdout.close()


def test_root_attaches_to_another_users_process_as_that_user(start: Start, place: Path) -> None:
    """All files are that user's, with his group; the agent answers root, and leaves nothing."""
    home = place / "nobodys" / "new" / "home"
    target = start("idle", home=home)
    attached = attach(target.pid, timeout_s=DEADLINE_S)
    assert attached.method is not None
    made = [home.parent, home, attached.folder.path, *attached.folder.path.iterdir()]
    owners = set()
    for path in made:
        with contextlib.suppress(FileNotFoundError):  # a new file is renamed once whole
            info = path.lstat()
            owners.add((info.st_uid, info.st_gid))
    assert owners == {(NOBODY.uid, NOBODY.gid)}
    job = probing.connect(target.pid)
    assert job.eval("__import__('os').getuid()").value == str(NOBODY.uid)
    assert attach(target.pid).method is None
    job.detach()
    wait_until(lambda: not list(home.iterdir()), "the folder to go")


@pytest.mark.parametrize(
    "words", [("attach", "{pid}"), ("{pid}", "eval", "--attach", "1")], ids=["attach", "--attach"]
)
def test_root_makes_nothing_where_a_process_may_not(
    start: Start, place: Path, words: tuple[str, ...]
) -> None:
    """A run directory in root's own folder is neither made nor given away; one sentence says so."""
    target = start("idle", home=place / "roots" / "deep" / "home")
    asked = [word.format(pid=target.pid) for word in words]
    done = run_command(*asked, cwd=place, env=clean_env(place / "own"))
    assert done.returncode != 0
    assert f"{place}/roots/deep/home cannot be written (Permission denied)" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((place / "roots").iterdir()) == []
    assert not (place / "own").exists()


def test_an_unsafe_eval_makes_nothing_where_a_process_may_not(start: Start, place: Path) -> None:
    """What stands in for attaching is held to the same."""
    fifo = place / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    target = start("until_told", "keeping", str(fifo), home=place / "roots" / "home")
    wait_until(lambda: process.state(target.pid) == "S", "the call in C")
    done = run_command(
        str(target.pid), "eval", "--unsafe", "1", cwd=place, env=clean_env(place / "own")
    )
    assert done.returncode != 0
    assert f"{place}/roots/home cannot be written (Permission denied)" in done.stderr
    assert list((place / "roots").iterdir()) == []


def test_root_reaches_an_unsafe_eval_of_another_users(start: Start, place: Path) -> None:
    """The code runs in the other user's process, and its files are that user's."""
    fifo = place / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    target = start("until_told", "keeping", str(fifo), home=place / "nobodys" / "home")
    wait_until(lambda: process.state(target.pid) == "S", "the call in C")
    assert probing.connect(target.pid).eval("40 + 2", unsafe=True).value == "42"
    assert os.lstat(place / "nobodys" / "home").st_uid == NOBODY.uid


def test_a_link_that_is_laid_meanwhile_is_not_followed(start: Start, place: Path) -> None:
    """A run directory that turns into a link to root's folder and back has nothing made there."""
    home, roots = place / "nobodys" / "home", place / "roots"
    target = start("turning", str(home), str(roots), home=home)
    directory, started = directory_of(target.pid), process.start_time(target.pid)
    made = 0
    end = time.monotonic() + 4.0
    while time.monotonic() < end:
        try:
            with written_as_its_user(target.pid, directory):
                folder = directory.create_folder(target.pid, started or 0)
                made += 1
                write_private(folder.attach_script, b"")
                folder.attach_script.unlink()
                folder.path.rmdir()
        except (AttachFailed, UnsafeRunDirectory):
            continue
    assert list(roots.iterdir()) == []
    assert made, "never in time"
    with pytest.raises(ProbingError):
        attach(target.pid, timeout_s=0.2)


def test_only_the_thread_that_acts_gives_its_rights_away(place: Path) -> None:
    """Meanwhile other threads are root, and afterwards all is as it was, capabilities included."""
    seen: dict[str, set[str]] = {}
    inside, noted = threading.Event(), threading.Event()

    def look_from_beside() -> None:
        inside.wait()
        note("other")
        noted.set()

    def note(name: str) -> None:
        lines = Path("/proc/thread-self/status").read_text().splitlines()
        seen[name] = {x for x in lines if x.startswith(("Uid", "Gid", "Groups", "Cap"))}

    note("before")
    threading.Thread(target=look_from_beside, daemon=True).start()
    with acting_as(NOBODY):
        note("inside")
        inside.set()
        assert noted.wait(DEADLINE_S)
        forbidden = [place / "roots" / "x", Path("/proc/1/root") / place.relative_to("/") / "x"]
        for path in forbidden:
            with pytest.raises(PermissionError):
                path.mkdir()
        (place / "nobodys" / "x").mkdir()
    note("after")
    assert seen["before"] == seen["after"] == seen["other"]
    rights = dict(line.split(":\t") for line in seen["inside"])
    assert rights["Uid"].split() == ["0", "0", "0", str(NOBODY.uid)]
    assert rights["Gid"].split()[3] == str(NOBODY.gid)
    assert rights["Groups"].split() == ["65533"]
    assert int(rights["CapEff"], 16) == 0
