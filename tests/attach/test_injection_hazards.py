"""What may go wrong around an injection, made to go wrong: it harms neither process nor child."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.attach import preflight
from probing.attach.injectors.borrowing.tracing import TracedThread, all_stopped, let_late_ones_go
from probing.attach.injectors.injected.script import bootstrap_text, forks_text, injected_code
from probing.attach.injectors.refusal import CannotInject
from probing.attach.preflight import find_obstacle
from probing.linux import process
from probing.rundir.attach_order import AttachFiles
from probing.rundir.folders import RunDirectory
from probing.stacks.work_done import children_of
from tests.harness.targets import clean_env, wait_until

pytestmark = pytest.mark.anypython

IN_KERNEL = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
run = ctypes.cast(libc.system, ctypes.c_void_p)
stack = ctypes.create_string_buffer(1 << 20)
top = ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~0xFF)
def start():
    "As vfork does: the kernel holds this thread until the child, which runs a command, has ended."
    print(threading.get_native_id(), flush=True)
    libc.clone(run, top, 0x4000 | 17, ctypes.c_char_p(sys.argv[1].encode()))
    while True:
        time.sleep(0.001)
threading.Thread(target=start).start()
"""


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A pipe with a name."""
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.fixture
def in_kernel(fifo: Path) -> Iterator[tuple[int, int]]:
    """A process and that thread of it which is in state D until the pipe is written to."""
    process = subprocess.Popen(
        [sys.executable, "-c", IN_KERNEL, f"read line < {fifo}"],
        stdout=subprocess.PIPE,
        env=clean_env(fifo.parent),
    )
    assert process.stdout is not None
    try:
        thread_id = int(process.stdout.readline())
        # Before it has that child, it may be in that state for a moment, at a lock of the kernel's.
        wait_until(lambda: children_of(process.pid), "the child")
        wait_until(lambda: state(process.pid, thread_id) == "D", "state D")
        yield process.pid, thread_id
    finally:
        process.kill()
        with fifo.open("r+b", buffering=0) as file:
            file.write(b"\n")
            process.communicate()


def state(pid: int, thread_id: int) -> str:
    """The kernel's letter for the state of a thread."""
    return Path(f"/proc/{pid}/task/{thread_id}/stat").read_text().rpartition(")")[2].split()[0]


def order(script: Path, *, pid: int) -> str:
    """The text of a script that is to bring an agent into a process."""
    return bootstrap_text(
        {
            "pid": pid,
            "script": str(script),
            "home": str(script.parent),
            "python": [0, 0],
            "places": [],
            "uid": os.getuid(),
            "operator": os.getpid(),
            "forks": forks_text(),
        }
    )


def test_a_child_leaves_the_code_to_its_parent(tmp_path: Path) -> None:
    """A forked child, which may run what was injected into its parent, does not begin."""
    script = tmp_path / "attach.py"
    script.touch()
    exec(compile(order(script, pid=os.getppid()), "attach.py", "exec"), {})
    assert script.exists()


def test_a_process_that_may_start_no_thread_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves word of it, and nothing that looks as if an agent were about to start."""

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    pid = os.getpid()
    files = AttachFiles(RunDirectory(tmp_path).create_folder(pid, process.start_time(pid) or 0))
    files.script.write_text(order(files.script, pid=pid))
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    exec(injected_code(str(files.script)), {})
    assert "RuntimeError: can't start new thread" in files.failure().get("error", "")
    assert not files.begun.exists()
    assert not files.script.exists()


@pytest.mark.usefixtures("patient")
def test_a_thread_that_stops_late_is_let_go(in_kernel: tuple[int, int], fifo: Path) -> None:
    """Told to stop, given up on, and stopped all the same once it could: it goes on at once."""
    pid, thread_id = in_kernel
    thread = TracedThread(pid, thread_id)
    with pytest.raises(CannotInject, match=f"thread {thread_id} did not stop within"):
        thread.stop(0.01)
    thread.let_go()
    with fifo.open("wb") as file:
        file.write(b"\n")
    wait_until(lambda: state(pid, thread_id) == "t", "the stop that comes late")
    let_late_ones_go()
    wait_until(lambda: state(pid, thread_id) in "RS", "the thread to go on")
    with all_stopped(pid):
        assert state(pid, thread_id) == "t"


@pytest.mark.usefixtures("patient")
def test_all_go_on_when_one_does_not_stop(
    in_kernel: tuple[int, int], fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one thread cannot be stopped, those that were told to stop as well are let go."""
    pid, thread_id = in_kernel
    wait = TracedThread.wait_stopped

    def wait_brief(thread: TracedThread, timeout_s: float | None = None) -> None:
        wait(thread, 0.2 if thread.thread_id == thread_id else timeout_s)

    monkeypatch.setattr(TracedThread, "wait_stopped", wait_brief)
    with pytest.raises(CannotInject, match=f"thread {thread_id} did not stop"), all_stopped(pid):
        pass
    others = [int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != thread_id]
    let_late_ones_go()
    assert {state(pid, other) for other in others} <= {"R", "S"}
    with fifo.open("wb") as file:
        file.write(b"\n")
    wait_until(lambda: state(pid, thread_id) == "t", "the stop that comes late")
    let_late_ones_go()


def test_a_wait_in_the_kernel_that_ends_is_no_obstacle(
    in_kernel: tuple[int, int], fifo: Path
) -> None:
    """One that lasts is named; one that ends while it is looked at is not."""
    pid, thread_id = in_kernel
    assert f"its thread {thread_id} is in an uninterruptible wait" in str(find_obstacle(pid))
    with fifo.open("wb") as file:
        file.write(b"\n")
    wait_until(lambda: state(pid, thread_id) in "RS", "the wait to end")
    assert find_obstacle(pid) is None


@pytest.mark.parametrize(
    ("ours", "its", "is_refused"),
    [
        ({"Seccomp": "0"}, {"Seccomp": "2"}, True),
        ({"Seccomp": "2"}, {"Seccomp": "2"}, False),
        ({"Seccomp": "0"}, {"Seccomp": "0"}, False),
        ({}, {}, False),
        (
            {"Seccomp": "2", "Seccomp_filters": "1"},
            {"Seccomp": "2", "Seccomp_filters": "2"},
            True,
        ),
    ],
)
def test_a_filter_of_system_calls_that_is_not_ours_is_an_obstacle(
    ours: dict[str, str], its: dict[str, str], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel counts filters, and where it tells only that there is one: before 5.9."""
    other = os.getpid() + 1
    monkeypatch.setattr(process, "threads", lambda _: [other])
    monkeypatch.setattr(process, "status", lambda pid: its if pid == other else ours)
    assert (preflight._filtered(other) is not None) is is_refused
