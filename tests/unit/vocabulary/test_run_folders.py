"""Run folders: whose they are, which are alive, and which are removed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import probing
from probing.client import listing
from probing.client.listing import list_processes
from probing.errors import NotPython, RingError
from probing.linux import process
from probing.messages.card import Card
from probing.messages.codec import with_checksum, without_checksum
from probing.reach.endpoint import Local, resolve
from probing.reach.ping import ping
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.rundir.pruning import prune
from probing.tables import RECORDED_TABLES, STEPS, Column, Table
from tests import faults
from tests.harness.ring_writer import RingWriter
from tests.harness.sql_fixtures import recorded_folder
from tests.harness.targets import DEADLINE_S, ROOT, Target, clean_env, run_command, stop, wait_until

pytestmark = pytest.mark.anypython

DAY_S = 86_400
_NO_PID = 1 << 22  # the kernel gives none that is as large
NEW_PID_NAMESPACE = ("unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """An empty run directory, and that of this environment."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("PROBING_HOME", str(home))
    return RunDirectory(home)


def card_of(folder: ProcessFolder, **changes: object) -> Card:
    """A card for the folder, as a process of this machine would have written it."""
    card = Card(
        pid=folder.pid,
        start_time=folder.start_time,
        boot_id=process.boot_id(),
        pid_namespace=process.pid_namespace(),
        uid=os.getuid(),
        host=socket.gethostname(),
        command=("python", "train.py"),
        executable=sys.executable,
        python="3.11.0",
        version="1",
        started_ns=0,
        rank=None,
        local_rank=None,
        world_size=None,
    )
    return dataclasses.replace(card, **changes)  # type: ignore[arg-type]


def stale(directory: RunDirectory, count: int, *, age_s: float, **changes: object) -> None:
    """Leave folders of ended processes, each with a file for every table."""
    then = time.time() - age_s
    for number in range(count):
        folder = directory.create_folder(_NO_PID + number, number)
        folder.write_card(card_of(folder, **changes))
        for table in RECORDED_TABLES:
            folder.ring(table.name).write_bytes(b"x" * 4096)
        for entry in folder.path.iterdir():
            os.utime(entry, (then, then))


def shown(*, dead: bool = False) -> dict[tuple[int, str], str]:
    """What `probing list` says of each folder."""
    found = list_processes(dead=dead)
    return {(one.pid, str(one.folder)): one.state for one in found}


@pytest.mark.fault("R3")
def test_a_recycled_pid_is_not_taken_for_the_process_that_had_it(
    directory: RunDirectory, fault: faults.Reached
) -> None:
    """A folder of this very pid, but of another start, is the record of one that has ended."""
    started = process.start_time(os.getpid()) or 0
    earlier = directory.create_folder(os.getpid(), started - 1)
    earlier.write_card(card_of(earlier))
    fault.equals("same pid, other start time: alive", expected=False, got=earlier.is_alive())
    fault.equals("same pid, other start time: shown", {}, shown())
    state = shown(dead=True)[os.getpid(), str(earlier.path)]
    fault.equals("same pid, other start time: listed as", "dead", state)
    now = directory.create_folder(os.getpid(), started)
    now.write_card(card_of(now))
    assert now.is_alive()


def test_ended_processes_of_one_pid_are_asked_by_their_folders(
    directory: RunDirectory, tmp_path: Path
) -> None:
    """As of two containers, in which both were 1: the list and the error name the folders."""
    paths = []
    for started, namespace in ((10, 4026532178), (11, 4026532179)):
        path = directory.path / f"1-{started}-{namespace}"
        path.mkdir(mode=0o700)
        folder = ProcessFolder(path, 1, started)
        folder.write_card(card_of(folder, pid_namespace=namespace))
        paths.append(str(path))
    done = run_command("list", "--dead", cwd=tmp_path, env=clean_env(directory.path))
    assert "note: 2 processes have pid 1; by its folder" in done.stderr
    assert all(path in done.stderr for path in paths)
    assert resolve(paths[0], directory) == Local(folder=ProcessFolder(Path(paths[0]), 1, 10))
    if process.is_python(1):
        pytest.skip("pid 1 runs Python here")
    with pytest.raises(NotPython) as caught:
        resolve(1, directory)
    assert all(f"`probing {path} ...`" in str(caught.value.help) for path in paths)


@pytest.mark.fault("R3")
def test_the_same_pid_in_another_namespace_is_another_process(
    directory: RunDirectory, fault: faults.Reached
) -> None:
    """Even when a process here has that pid, started in that very tick."""
    folder = directory.create_folder(os.getpid(), process.start_time(os.getpid()) or 0)
    elsewhere: dict[str, dict[str, object]] = {
        "namespace": {"pid_namespace": process.pid_namespace() + 1, "host": "a-container"},
        "boot": {"boot_id": "another"},
    }
    for name, changes in elsewhere.items():
        folder.write_card(card_of(folder, **changes))
        fault.equals(f"same pid of another {name}: shown alive", {}, shown())
    fault.equals("same pid of another boot: listed", ["dead"], [*shown(dead=True).values()])


def contained_pid(folder: ProcessFolder) -> int:
    """The pid here of the one process of another pid namespace that has this start time."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    its = [pid for pid in pids if process.start_time(pid) == folder.start_time]
    (pid,) = (pid for pid in its if len(process.status(pid).get("NSpid", "").split()) > 1)
    return pid


@pytest.fixture
def contained(directory: RunDirectory, tmp_path: Path) -> Iterator[Target]:
    """An idle process with an agent, in a pid namespace of its own."""
    script = ROOT / "tests" / "programs" / "idle.py"
    argv = [*NEW_PID_NAMESPACE, sys.executable, "-m", "probing._run", str(script)]
    target = Target(argv, directory.path, tmp_path, PROBING="all")
    target.wait_for_output("ready")
    yield target
    target.reap()


def why_no_namespaces() -> str:
    """Why no pid namespace can be made here; nothing when it can."""
    tool = shutil.which("unshare")
    if tool is None:
        return "there is no unshare"
    done = subprocess.run([*NEW_PID_NAMESPACE, "true"], capture_output=True, text=True)
    return done.stderr


@pytest.mark.fault("R3")
@pytest.mark.skipif(bool(why_no_namespaces()), reason=f"unshare: {why_no_namespaces()}")
def test_a_record_of_another_namespace_stays_while_its_process_lives(
    directory: RunDirectory,
    contained: Target,
    fault: faults.Reached,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However old its files and small the quota; it goes by age once nobody answers there."""
    wait_until(lambda: directory.folders() and directory.folders()[0].read_card(), "its folder")
    (folder,) = directory.folders()
    wait_until(folder.is_listened_to, "its agent")
    monkeypatch.setattr(  # how soon it answers is the machine's matter
        listing, "ping", lambda folder, **_: ping(folder, timeout_s=DEADLINE_S)
    )
    pids = [pid for pid, _ in shown()]
    fault.equals("a live process of another namespace: shown alive", [contained_pid(folder)], pids)
    listed = [*shown(dead=True).values()]
    fault.equals("a live process of another namespace: listed as", ["idle"], listed)
    _age(folder)
    removed = len(prune(directory, keep_hours=1, keep_bytes=0))
    fault.equals("a live process of another namespace: removed", 0, removed)
    os.kill(contained.pid, 9)
    wait_until(lambda: not folder.is_listened_to(), "its end")
    _age(folder)  # it may have written its card meanwhile
    over = len(prune(directory, keep_hours=1e6, keep_bytes=0))
    fault.equals("an ended one of another namespace, over the quota: removed", 0, over)
    aged = len(prune(directory, keep_hours=1, keep_bytes=0))
    fault.equals("an ended one of another namespace, too old: removed", 1, aged)


@pytest.mark.fault("R3")
def test_a_record_of_another_machine_stays_while_its_process_lives(
    directory: RunDirectory, tmp_path: Path, fault: faults.Reached
) -> None:
    """A process that hangs changes no file, and from there neither pid nor socket tells of it.

    As seen from here that is a stopped one whose card tells of a boot and a host that are others,
    and whose socket leads nowhere.
    """
    script = ROOT / "tests" / "programs" / "idle.py"
    argv = [sys.executable, "-m", "probing._run", str(script)]
    target = Target(argv, directory.path, tmp_path, PROBING="all")
    try:
        target.wait_for_agent()
        folder = target.folder
        stop(target.pid)
        folder.socket.unlink()

        def pruned(**changes: str) -> int:
            folder.write_card(card_of(folder, **{"boot_id": "another", **changes}))
            old = time.time() - 2 * DAY_S
            for entry in folder.path.iterdir():
                os.utime(entry, (old, old))
            return len(prune(directory, keep_hours=1, keep_bytes=0))

        got = pruned(host="elsewhere")
        fault.equals("a live process of another machine, files of two days ago: removed", 0, got)
        target.kill()
        folder.held.rename(tmp_path / "held")
        got = pruned(host="elsewhere")
        fault.equals("one of another machine, on a disk without locks: removed", 0, got)
        (tmp_path / "held").rename(folder.held)
        fault.equals("an ended one of another machine: removed", 1, pruned(host="elsewhere"))
    finally:
        target.reap()


@pytest.mark.slow
@pytest.mark.fault("R3")
def test_a_thousand_stale_runs_are_removed_at_once(
    directory: RunDirectory, fault: faults.Reached
) -> None:
    """By four agents that start together, none of which fails; the live and the young stay."""
    stale(directory, 1000, age_s=2 * DAY_S)
    young = directory.create_folder(_NO_PID + 5000, 1)
    young.write_card(card_of(young))
    own = directory.create_folder(os.getpid(), process.start_time(os.getpid()) or 0)
    failures: list[OSError] = []
    spent: list[float] = []

    def look_through() -> None:
        begun = time.thread_time()
        try:
            prune(directory, keep_hours=24, keep_bytes=1 << 30)
        except OSError as error:
            failures.append(error)
        spent.append(time.thread_time() - begun)

    agents = [threading.Thread(target=look_through) for _ in range(4)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    fault.equals("1,000 stale runs, 4 agents at once: failures", [], failures)
    kept = {young: "the young", own: "the live"}
    left = sorted(kept.get(folder, "a stale") for folder in directory.folders())
    fault.equals("1,000 stale runs: kept", sorted(kept.values()), left)
    fault.at_most("1,000 stale runs: processor time of an agent", 5.0, max(spent), "s")


def test_the_oldest_records_go_first_where_there_is_too_much(directory: RunDirectory) -> None:
    """The quota keeps the newest; an old folder that is still empty is one in the making."""
    stale(directory, 3, age_s=60)
    folders = directory.folders()
    for place, folder in enumerate(folders):
        os.utime(folder.path, (time.time() - place, time.time() - place))
    empty = directory.create_folder(_NO_PID + 99, 1)
    one = sum(entry.stat().st_blocks * 512 for entry in folders[0].path.iterdir())
    assert prune(directory, keep_hours=24, keep_bytes=2 * one) == [folders[2]]
    assert empty.path.exists()


def test_an_ended_run_gives_back_what_it_has_not_written(directory: RunDirectory) -> None:
    """Its rings read as before to the byte, with their age and rights, and take what is in them."""
    folder = recorded_folder(directory.path)
    folder.write_card(card_of(folder))
    ring = folder.ring("torch_trace")
    written = ring.read_bytes()
    whole = written + bytes(4 << 20)
    ring.write_bytes(whole)
    ring.chmod(0o400)
    os.utime(ring, (1e9, time.time() - 60))
    before = ring.stat()
    assert before.st_blocks * 512 > 4 << 20
    assert prune(directory, keep_hours=1, keep_bytes=1 << 20) == []
    after = ring.stat()
    assert after.st_blocks * 512 < len(written) + 8192
    same = ("st_size", "st_mode", "st_mtime_ns")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert ring.read_bytes() == whole


def test_a_live_run_keeps_what_it_has_reserved(
    directory: RunDirectory, program: Callable[..., Target]
) -> None:
    """A hole in a file that is mapped would let a full disk kill who writes there."""
    target = program("idle", PROBING="0")
    folder = directory.create_folder(target.pid, process.start_time(target.pid) or 0)
    folder.write_card(card_of(folder))
    folder.ring("steps").write_bytes(b"x" + bytes(1 << 20))
    assert prune(directory, keep_hours=0, keep_bytes=0) == []
    assert folder.ring("steps").stat().st_blocks * 512 >= 1 << 20


def test_what_was_given_up_is_told(directory: RunDirectory, tmp_path: Path) -> None:
    """Who asks for it learns when it went and why; the list of the dead has a note of it."""
    stale(directory, 2, age_s=60)
    kept, gone = directory.folders()
    for place, folder in enumerate((kept, gone)):
        os.utime(folder.path, (time.time() - place, time.time() - place))
    size = sum(entry.stat().st_blocks * 512 for entry in kept.path.iterdir())
    assert prune(directory, keep_hours=24, keep_bytes=size) == [gone]
    env = clean_env(directory.path)
    done = run_command(str(gone.pid), "status", cwd=tmp_path, env=env)
    assert done.returncode == 3
    why = "the records of ended processes took more than PROBING_KEEP_MIB"
    told = rf"the record of process {gone.pid} \(python train.py\) was given up at [-\d :]+: {why}"
    assert re.search(told, done.stderr)
    assert re.search(told, run_command("list", "--dead", cwd=tmp_path, env=env).stderr)
    assert prune(directory, keep_hours=0, keep_bytes=size) == [kept]
    done = run_command("list", "--dead", cwd=tmp_path, env=env)
    assert f"process {kept.pid} " in done.stderr
    assert "it was older than PROBING_KEEP_HOURS (and of 1 before it)" in done.stderr


def test_the_folder_of_an_agent_that_answers_stays_though_its_start_is_told_otherwise(
    directory: RunDirectory,
) -> None:
    """As in another time namespace, where the kernel tells other start times."""
    stale(directory, 1, age_s=2 * DAY_S)
    (folder,) = directory.folders()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder.socket))
        server.listen(1)
        os.utime(folder.socket, (0, 0))
        assert prune(directory, keep_hours=1, keep_bytes=0) == []
    assert prune(directory, keep_hours=1, keep_bytes=0) == [folder]


@pytest.mark.fault("R3")
def test_a_later_version_is_read(directory: RunDirectory, fault: faults.Reached) -> None:
    """Its card has more members and its rings more columns: both are passed over."""
    folder = recorded_folder(directory.path)
    folder.write_card(card_of(folder))
    path = folder.path / "card.json"
    members = json.loads(without_checksum(path.read_bytes()))
    path.write_bytes(with_checksum(json.dumps({**members, "colour": {"red": 1}}).encode()))
    is_read = folder.read_card() == card_of(folder)
    fault.equals("a card with an unknown member: read", expected=True, got=is_read)
    later = Table(
        name="steps",
        doc="",
        kind="recorded",
        columns=(*STEPS.columns, Column(name="colour", type="int64", doc="")),
    )
    writer = RingWriter(later, capacity=8)
    writer.write(step=7, start_ns=1, duration_ns=2, colour=3)
    writer.save(folder.ring("steps"))
    run = probing.connect(str(folder.path))
    rows = run.query("SELECT step FROM python.steps").to_pylist()
    fault.equals("a ring with an unknown column: rows", [{"step": 7}], rows)
    other = bytearray(folder.ring("steps").read_bytes())
    other[:8] = b"PRBRING9"
    folder.ring("steps").write_bytes(other)
    with pytest.raises(RingError, match="not a ring file of this format"):
        run.query("FROM python.steps")
    (count,) = run.query("SELECT count(*) AS n FROM python.torch_trace").to_pylist()
    fault.equals("beside a ring of a foreign format: rows of another table", {"n": 102}, count)


def test_looking_whether_an_agent_is_there_loads_no_server(
    program: Callable[..., Target],
) -> None:
    """Who connects and says nothing costs the process nothing; the first question does."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    wait_until(target.folder.is_listened_to, "its agent")
    assert target.run("list").returncode == 0  # a ping, answered after the look
    assert not process.has_library(target.pid, "_http_parser")
    assert target.run(str(target.pid), "eval", "1").returncode == 0
    assert process.has_library(target.pid, "_http_parser")


_TWICE = """
import json, os, threading
from pathlib import Path
import probing
from probing import _boot
first = probing.start()
_boot.start()
second = probing.start()
ours = [t.name for t in threading.enumerate() if t.name.startswith("probing-")]
inodes = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
          if os.path.islink(f"/proc/self/fd/{n}")]
lines = Path("/proc/self/net/unix").read_text().splitlines()
mine = [l for l in lines if l.endswith("/sock") and f"socket:[{l.split()[6]}]" in inodes]
print(len(ours), len(mine), len(os.listdir(os.environ["PROBING_HOME"])))
"""


@pytest.mark.fault("R3")
def test_a_second_agent_in_a_process_is_the_first(tmp_path: Path, fault: faults.Reached) -> None:
    """Whoever starts it again, by whatever way: one thread, one socket, one folder."""
    done = subprocess.run(
        [sys.executable, "-c", _TWICE],
        env=clean_env(tmp_path / "home", PROBING="all"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    told = (done.stdout.strip(), done.stderr)
    fault.equals("an agent started again: threads, sockets, folders", ("1 1 1", ""), told)


def _age(folder: ProcessFolder) -> None:
    """Have all files of a run folder last written two days ago."""
    old = time.time() - 2 * DAY_S
    for entry in folder.path.iterdir():
        os.utime(entry, (old, old), follow_symlinks=False)
