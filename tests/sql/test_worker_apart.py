"""A SQL worker is no child of the process that asks it, which hears of its end and is its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.linux import process
from probing.linux.host_memory import host_memory_rows, sql_workers
from probing.own_files import SQL_WORKER_PARENT
from probing.rundir.folders import ProcessFolder
from probing.server.sql_worker import apart
from probing.server.sql_worker.worker_process import WorkerProcess
from tests.harness.targets import DEADLINE_S, stop, wait_until


@contextlib.contextmanager
def started(folder: ProcessFolder | None = None) -> Iterator[WorkerProcess]:
    """A worker whose number is known."""
    worker = WorkerProcess(folder, 256)
    try:
        wait_until(lambda: worker.is_gone() or worker.pid, "its number")
        yield worker
    finally:
        worker.kill()
        worker.wait()
        worker.release()


def parent_of(pid: int) -> int:
    """Who started a process, or has taken it over."""
    facts = process.facts(pid)
    assert facts is not None
    return facts.parent


@pytest.fixture
def _is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is no child here, whatever became of those of other tests."""
    if apart._adopts():
        pytest.skip("whose parent has ended is a child of this process")
    monkeypatch.setattr(apart, "_is_anyone_left", lambda: False)


@pytest.mark.usefixtures("_is_left")
def test_nobody_who_waits_for_all_children_gets_it() -> None:
    """Neither the worker nor its parent is a child; how it ends is told all the same."""
    with started() as worker:
        parent = parent_of(worker.pid)
        for pid in (worker.pid, parent):
            with pytest.raises(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        os.kill(worker.pid, signal.SIGSEGV)
        wait_until(worker.is_gone, "its end")
        assert worker._apart.how_it_ended() == "signal 11"


def test_who_adopts_it_takes_note_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first process of a container does, whose child it would be anyhow."""
    monkeypatch.setattr(apart, "_adopts", lambda: True)
    with started() as worker:
        parent = parent_of(worker.pid)
        assert parent_of(parent) == os.getpid()
    assert worker._apart.how_it_ended() == "signal 9"
    wait_until(lambda: process.state(parent) is None, "the parent is no zombie")


def test_where_nobody_takes_note_the_next_is_a_child() -> None:
    """A container's first process may wait for nobody: no zombie is made for each worker."""
    child = subprocess.Popen(["true"])
    try:
        wait_until(lambda: process.state(child.pid) == "Z", "its end")
        apart._left[:] = [(child.pid, time.monotonic())]
        assert not apart._is_anyone_left(), "it may be looked at later"
        apart._left[:] = [(child.pid, time.monotonic() - 2 * apart._TAKE_NOTE_S)]
        assert apart._is_anyone_left()
    finally:
        child.wait()
    assert not apart._is_anyone_left()


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_the_interpreter_prints_is_no_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_alone: bool
) -> None:
    """It may find no memory, or no room for one more process: its last words are the reason."""
    script = tmp_path / SQL_WORKER_PARENT
    words = "Traceback (most recent call last):\n  line 7\nOSError: no room\n"
    numbers = "" if is_alone else "7 1000000000\n"
    script.write_text(f"import os\nos.write(2, {words + numbers!r}.encode())\nos._exit(1)\n")
    monkeypatch.setattr(apart, "__file__", str(tmp_path / "apart.py"))
    one = apart.ProcessApart([], {})
    try:
        assert one.wait(DEADLINE_S)
        assert (one.pid, one.code) == (0 if is_alone else 1000000000, None)
        assert one.how_it_ended() == "exit code 1: OSError: no room"
    finally:
        one.release()
        apart._left.clear()


def test_no_room_for_one_more_process_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By whichever fork finds none, and not as a traceback."""
    own = Path(apart.__file__).with_name(SQL_WORKER_PARENT)
    last = "if __name__"
    full = f"def full():\n    raise BlockingIOError(11, 'no room')\nos.fork = full\n{last}"
    (tmp_path / SQL_WORKER_PARENT).write_text(own.read_text().replace(last, full))
    monkeypatch.setattr(apart, "__file__", str(tmp_path / "apart.py"))
    monkeypatch.setattr(apart, "_is_anyone_left", lambda: False)
    one = apart.ProcessApart(["folder"], {})
    try:
        assert one.wait(DEADLINE_S)
        assert one.how_it_ended() == "exit code 1: [Errno 11] no room"
    finally:
        one.release()


@pytest.mark.parametrize("is_early", [True, False])
def test_it_goes_with_the_thread_that_started_it(*, is_early: bool) -> None:
    """By which an exec is seen, too: the process is the same after it."""
    workers: list[WorkerProcess] = []
    is_over = threading.Event()

    def start() -> None:
        workers.append(WorkerProcess(None, 256))
        is_over.wait(0 if is_early else DEADLINE_S)

    thread = threading.Thread(target=start)
    thread.start()
    wait_until(lambda: workers and (is_early or workers[0].is_gone() or workers[0].pid), "a start")
    is_over.set()
    thread.join()
    assert workers[0]._apart.wait(DEADLINE_S)
    workers[0].release()


def test_it_is_ended_though_its_parent_is_stopped() -> None:
    """As by who stops all of a session: a statement that runs away ends all the same."""
    with started() as worker:
        parent = parent_of(worker.pid)
        stop(parent)
        try:
            worker.kill()
            wait_until(lambda: process.start_time(worker.pid) is None, "the worker's end")
        finally:
            os.kill(parent, signal.SIGCONT)
        wait_until(worker.is_gone, "the parent's words")
        assert worker._apart.how_it_ended() == "signal 9"


@pytest.mark.usefixtures("_is_left")
def test_it_goes_with_its_parent() -> None:
    """And that is told, though not by the parent."""
    with started() as worker:
        pid = worker.pid
        os.kill(parent_of(pid), signal.SIGKILL)
        wait_until(lambda: process.start_time(pid) is None, "the worker's end")
        assert worker._apart.wait(DEADLINE_S)
        assert worker._apart.how_it_ended() == "its parent process was ended"


def test_its_memory_is_told_with_that_of_the_process(tmp_path: Path) -> None:
    """Both have rows in python.host_memory, as what they are."""
    path = tmp_path / f"{os.getpid()}-1"
    path.mkdir()
    with started(ProcessFolder(path, os.getpid(), 1)) as worker:
        both = {worker.pid, parent_of(worker.pid)}
        wait_until(lambda: sql_workers(os.getpid()) >= both, "its words")
        told = host_memory_rows(os.getpid())
        pid, role = (told.columns.index(name) for name in ("pid", "role"))
        assert {row[role] for row in told.rows if row[pid] in both} == {"probing"}
