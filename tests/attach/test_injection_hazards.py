"""What may go wrong around an injection, made to go wrong: it harms neither process nor child."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.attach.injectors.borrowing.tracing import TracedThread, all_stopped, let_late_ones_go
from probing.attach.injectors.injected.script import bootstrap_text, forks_text
from probing.attach.injectors.refusal import CannotInject
from probing.attach.preflight import find_obstacle
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


def test_a_child_leaves_the_code_to_its_parent(tmp_path: Path) -> None:
    """A forked child, which may run what was injected into its parent, does not begin."""
    script = tmp_path / "attach.py"
    script.touch()
    order = bootstrap_text(
        {
            "pid": os.getppid(),
            "script": str(script),
            "home": str(tmp_path),
            "python": [0, 0],
            "places": [],
            "uid": os.getuid(),
            "operator": os.getpid(),
            "forks": forks_text(),
        }
    )
    exec(compile(order, "attach.py", "exec"), {})
    assert script.exists()


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


def test_all_go_on_when_one_does_not_stop(in_kernel: tuple[int, int], fifo: Path) -> None:
    """Where one thread cannot be stopped, those that were told to stop as well are let go."""
    pid, thread_id = in_kernel
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
