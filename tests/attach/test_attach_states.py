"""How far an attach has come is on record, and whatever is in its way is told, and can be left."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import probing
from probing.attach import attach as attach_module
from probing.attach.attach import Attached, attach
from probing.attach.preflight import find_obstacle
from probing.errors import AttachFailed, AttachRefused, AttachWaiting, NotProbed, ProbingError
from probing.linux import process
from probing.rundir.attach_order import AttachFiles, Note
from probing.rundir.folders import ProcessFolder, from_env
from tests.harness.targets import DEADLINE_S, Target, program_path, stop, wait_until
from tests.unit.vocabulary.test_run_folders import card_of

pytestmark = pytest.mark.anypython

PICKY = """
import sys, time

def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith("attach.py"):
        raise RuntimeError("nobody opens that")

sys.addaudithook(hook)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""
ENDING = """
import time

class Last:
    def __del__(self, sleep=time.sleep, print=print):
        print("ready", flush=True)
        sleep(600)

last = Last()
"""
FILTERED = """
import ctypes, time

libc = ctypes.CDLL(None)
allow = (ctypes.c_uint64 * 1)(0x7FFF_0000_0000_0006)  # BPF_RET | BPF_K, SECCOMP_RET_ALLOW

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(1, ctypes.addressof(allow))), 0, 0) == 0
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Target]]:
    """Starts programs that never heard of probing, and waits until they are ready."""
    targets: list[Target] = []
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))

    def begin(program: str, *args: str) -> Target:
        cwd = tmp_path / str(len(targets))
        cwd.mkdir()
        if "\n" in program:
            (cwd / "program.py").write_text(program)
        script = cwd / "program.py" if "\n" in program else program_path(program)
        targets.append(Target([sys.executable, str(script), *args], tmp_path / "home", cwd))
        targets[-1].wait_for_output("ready")
        return targets[-1]

    yield begin
    for target in targets:
        target.reap()


def folder_of(target: Target) -> ProcessFolder:
    """Its run folder, whether or not it is there."""
    return from_env().folder_for(target.pid, process.start_time(target.pid) or 0)


def files_of(target: Target) -> AttachFiles:
    """Where the state of its attach is."""
    return AttachFiles(folder_of(target))


def listed(target: Target) -> dict[str, object]:
    """Its line of the list."""
    (row,) = json.loads(target.run("list", "--format", "json").stdout)
    assert isinstance(row, dict)
    return row


def test_what_a_killed_attach_has_left_is_taken_over(start: Callable[..., Target]) -> None:
    """Ordered and never injected, or injected by nobody who is left: the next attach works."""
    target = start("stuck", "sleep")
    files = files_of(target)
    from_env().create_folder(target.pid, files.folder.start_time)
    files.order("raise SystemExit", Note(injector=1 << 22))
    row = listed(target)
    assert row["state"] == "attaching"
    assert "came to no end: whoever ordered it was killed" in str(row["problems"])
    with pytest.raises(NotProbed, match="whoever ordered it was killed"):
        probing.connect(target.pid).query("SELECT 1")
    files.write_note(Note(injector=1 << 22, method="thread"))  # by a program before an exec
    job = probing.connect(target.pid)
    assert job.attach().method is not None
    # What had no agent when it was connected to has one now.
    assert job.query("SELECT 1 AS x").to_pylist() == [{"x": 1}]
    assert files.read() is None
    assert sorted(path.name for path in files.folder.path.glob("attach*")) == []


def test_what_has_not_begun_can_be_given_up_for_another_way(start: Callable[..., Target]) -> None:
    """A main thread that stays in C never takes from its queue; a borrowed one begins at once."""
    if sys.version_info >= (3, 12):
        pytest.skip("any thread takes from the queue; there is none from 3.14 on")
    target = start("stuck", "c_sleep")
    wait_until(lambda: process.state(target.pid) == "S", "the wait")
    with pytest.raises(AttachWaiting, match="its main thread has reached no safe point"):
        attach(target.pid, how="pending", timeout_s=1)
    assert "by the way pending and has not begun" in str(listed(target)["problems"])
    assert attach(target.pid, how="auto").method == "thread"


def test_the_second_of_two_waits_for_the_first(start: Callable[..., Target]) -> None:
    """Both say that the agent is in, and one that it was there already."""
    target = start("stuck", "sleep")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: attach(target.pid, timeout_s=60).method, range(2)))
    assert sorted(method is None for method in found) == [False, True]
    with files_of(target).turn(from_env(), 0) as lock:
        assert lock is not None
        with files_of(target).turn(from_env(), 0) as other:
            assert other is None


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once an attach has looked for an obstacle."""
    event = threading.Event()

    def look(pid: int) -> ProbingError | None:
        try:
            return find_obstacle(pid)
        finally:
            event.set()

    monkeypatch.setattr(attach_module, "find_obstacle", look)
    return event


@contextlib.contextmanager
def stopped_by_another(target: Target, looked: threading.Event) -> Iterator[Future[Attached]]:
    """Somebody attaches to the process and has stopped it; a second attach waits for his turn."""
    with ThreadPoolExecutor(1) as pool, files_of(target).turn(from_env(), 0):
        stop(target.pid)
        second = pool.submit(attach, target.pid, timeout_s=60)
        assert looked.wait(DEADLINE_S)
        yield second


def test_who_attaches_now_is_no_obstacle(
    start: Callable[..., Target], looked: threading.Event
) -> None:
    """He traces and stops the process for a moment; whoever comes then waits for his turn."""
    target = start("stuck", "sleep")
    with stopped_by_another(target, looked) as second:
        os.kill(target.pid, signal.SIGCONT)
        wait_until(lambda: process.state(target.pid) == "S", "the end of the stop")
    assert second.result().method is not None


def test_one_that_is_stopped_behind_a_turn_is_refused(
    start: Callable[..., Target], looked: threading.Event
) -> None:
    """It is looked at once more, and nothing is left behind."""
    target = start("stuck", "sleep")
    with stopped_by_another(target, looked) as second:
        pass
    with pytest.raises(AttachRefused, match="it is stopped by a signal"):
        second.result()
    assert not folder_of(target).path.exists()


def test_a_process_short_of_files_is_refused_beforehand(start: Callable[..., Target]) -> None:
    """How many are free is said, and how to get more; then it works."""
    target = start("stuck", "sleep")
    hard = resource.prlimit(target.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (40, hard))
    with pytest.raises(
        AttachRefused, match="of the 40 files that it may have open only"
    ) as refused:
        attach(target.pid)
    assert f"prlimit --pid {target.pid} --nofile=1024" in refused.value.help
    assert not folder_of(target).path.exists()
    resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (1024, hard))
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    with pytest.raises(AttachFailed, match="File too large"):
        attach(target.pid)
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, infinite)
    assert attach(target.pid).method is not None


def test_an_audit_hook_in_the_way_is_told(start: Callable[..., Target]) -> None:
    """What it raised reaches whoever attaches, by whatever way, and nothing is left behind."""
    target = start(PICKY)
    with pytest.raises(AttachFailed, match="RuntimeError: nobody opens that"):
        attach(target.pid, how="thread")
    if sys.version_info < (3, 14):
        with pytest.raises(AttachFailed, match="kept from opening its script: by an audit hook"):
            attach(target.pid, how="pending", timeout_s=2)
    assert not folder_of(target).path.exists()


def test_a_failure_that_nobody_heard_of_stays_on_record(start: Callable[..., Target]) -> None:
    """`list` and whatever needs an agent tell it; the next attach clears it."""
    target = start("stuck", "sleep")
    files = files_of(target)
    from_env().create_folder(target.pid, files.folder.start_time)
    os.symlink(ascii({"error": "OSError: no room"}), files.failed)
    assert "the agent failed to start OSError: no room" in str(listed(target)["problems"])
    with pytest.raises(AttachFailed, match="no room"):
        probing.connect(target.pid).query("SELECT 1")
    assert attach(target.pid).method is not None
    assert listed(target)["problems"] == []


def test_a_process_that_shuts_down_is_not_waited_for(start: Callable[..., Target]) -> None:
    """Its threads get the interpreter lock no more, and that is what is said."""
    target = start(ENDING)
    with pytest.raises(AttachFailed, match="its Python is shutting down"):
        attach(target.pid, how="thread")
    assert not folder_of(target).path.exists()


def test_a_process_behind_a_filter_of_its_own_is_left_alone(start: Callable[..., Target]) -> None:
    """A filter that this shell is under, too, is none of its own."""
    target = start(FILTERED)
    with pytest.raises(AttachRefused, match="a filter of system calls"):
        attach(target.pid)
    code = FILTERED.replace(
        "time.sleep(600)", "from probing.attach.attach import attach; import sys"
    )
    code += "print(attach(int(sys.argv[1])).method)"
    argv = [sys.executable, "-c", code, str(target.pid)]
    done = subprocess.run(argv, env=target.env, capture_output=True, text=True)
    assert done.stdout.split() == ["ready", "thread"], done.stderr


def test_an_agent_that_closes_what_it_had_opened_is_none(
    start: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that cannot start: what it left is in no way of the next attach."""
    monkeypatch.setattr(attach_module, "_PING_S", DEADLINE_S)
    target = start("stuck", "sleep")
    folder = from_env().create_folder(target.pid, process.start_time(target.pid) or 0)
    folder.write_card(card_of(folder))
    with socket.socket(socket.AF_UNIX) as left, ThreadPoolExecutor(1) as pool:
        left.bind(str(folder.socket))
        left.listen()

        def leave() -> None:
            connection, _ = left.accept()
            (folder.path / "card.json").unlink()
            folder.socket.unlink()
            connection.close()

        leaving = pool.submit(leave)
        assert attach(target.pid).method is not None
        leaving.result()
    assert probing.connect(target.pid).eval("6 * 7").value == "42"


def test_one_that_has_no_agent_says_so(start: Callable[..., Target]) -> None:
    """A process that was connected to before its agent came and left has none again."""
    target = start("stuck", "sleep")
    job = probing.connect(target.pid)
    with pytest.raises(NotProbed):
        job.query("SELECT 1")
    attach(target.pid)
    assert job.eval("6 * 7").value == "42"
    job.detach()
