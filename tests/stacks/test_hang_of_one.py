"""What `probing PID hang` says of a process that belongs to no job."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing.cluster.job.members import find_members
from probing.diagnosis.hang.diagnosis import diagnose
from tests.harness.targets import Target, clean_env, program_path, run_command, wait_until

pytestmark = pytest.mark.anypython

StartProgram = Callable[..., Target]


def line_of(text: str) -> int:
    """The number of the first line of the program that holds some text."""
    lines = program_path("one_hang").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def answer(target: Target, *args: str) -> str:
    """What is said of it; nothing else is, on either stream."""
    done = target.run(str(target.pid), "hang", *args)
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


def answer_with(target: Target, words: str) -> str:
    """What is said of it, once these words are in it."""

    def found() -> str | None:
        text = answer(target)
        return text if words in text else None

    return wait_until(found, words)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs no Python."""
    process = subprocess.Popen(["sleep", "600"], cwd=tmp_path)
    yield process
    process.kill()
    process.wait()


def test_a_process_without_python(shell: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """It is alive, and that is said, with the exit code of what cannot be asked."""
    env = clean_env(tmp_path / "home")
    for words in ((str(shell.pid), "hang", "--check"), ("-t", str(shell.pid), "hang")):
        done = run_command(*words, cwd=tmp_path, env=env)
        assert (done.returncode, done.stdout) == (3, "")
        first, *_ = done.stderr.splitlines()
        assert first == f"error: process {shell.pid} is alive, but it is not a Python process."


def test_a_process_without_python_beside_one_that_has_it(
    program: StartProgram, shell: subprocess.Popen[bytes]
) -> None:
    """Of several that are named each has its verdict, and none that is alive has ended."""
    target = program("one_hang", "event", PROBING="all")
    target.wait_for_output("ready")
    done = target.run("-t", str(shell.pid), "-t", str(target.pid), "hang")
    assert done.returncode == 0, done.stderr
    assert f"Process {shell.pid} is alive, but it is not a Python process." in done.stdout
    assert f"process {target.pid} is waiting for an event" in done.stdout
    assert "ended" not in done.stdout.lower()


@pytest.mark.parametrize("probing", ["1", "all"])
def test_an_import_of_torch_is_told_by_the_line_that_imports(
    program: StartProgram, probing: str
) -> None:
    """Neither the line nor the stack names the hook that waits for the end of the import."""
    target = program("one_hang", "importing", PROBING=probing)
    target.wait_for_output("ready")
    said = answer(target)
    assert f"at one_hang.py:{line_of('import torch  #')} in importing" in said
    assert "_boot.py" not in said


def test_a_pool_whose_only_worker_waits_for_a_task_of_it(program: StartProgram) -> None:
    """The task that is queued behind the one that waits for it is named: nothing can end that."""
    target = program("one_hang", "pool", PROBING="all")
    target.wait_for_output("ready")
    said = answer_with(target, "HANG: ")
    assert f"waits for the task whole at one_hang.py:{line_of('tasks[0].result')} in pool" in said
    assert (
        f'"uploads_0" waits for the task part at one_hang.py:{line_of("submit(part)")} in whole,'
        " which is queued behind its own, as no thread of the pool is free"
    ) in said
    assert target.run(str(target.pid), "hang", "--check").returncode == 1


def test_a_pool_all_of_whose_workers_do(program: StartProgram) -> None:
    """Each waits for a task that waits for any of them to be free."""
    target = program("one_hang", "pool_of_two", PROBING="all")
    target.wait_for_output("ready")
    said = answer_with(target, "HANG: ")
    for one, other in ((0, 1), (1, 0)):
        behind = rf'"uploads_{one}" waits for the task part .{{,60}} behind that of thread \d+'
        assert re.search(rf'{behind} "uploads_{other}", as no', said)


def test_a_pool_with_a_task_that_may_end_is_in_no_deadlock(program: StartProgram) -> None:
    """Another task of the pool is waited for, and a worker that is none of them may come to it."""
    target = program("one_hang", "busy_pool", PROBING="all")
    target.wait_for_output("ready")
    held = "(the task result, queued behind the 2 that its pool runs)"
    said = answer_with(target, held)
    assert said.startswith("PROCESS: ")
    assert '"uploads_1", which runs the task <lambda> and is waiting for a future' in said
    assert "deadlock" not in said


def test_a_signal_handler_that_wants_the_lock_of_what_it_interrupts(program: StartProgram) -> None:
    """The main thread waits for itself, and both lines are told."""
    target = program("one_hang", "handler", PROBING="all")
    target.wait_for_output("ready")
    said = answer_with(target, "HANG: ")
    inner = line_of("with lock:")
    outer = line_of("signal.raise_signal") - 1
    assert f'is in a deadlock: thread {target.pid} "MainThread" waits for the lock lock' in said
    assert f"at one_hang.py:{inner} in save, held by thread {target.pid}" in said
    assert f"since one_hang.py:{outer} in handler" in said


def test_a_process_that_a_thread_keeps_from_ending(program: StartProgram) -> None:
    """The thread is named, with its line: it was not started as a daemon."""
    target = program("one_hang", "ending", PROBING="all")
    target.wait_for_output("ready")
    said = answer_with(target, "waiting for an event")  # once the agent has left, too
    line = line_of("def upload") + 1
    assert re.search(
        r'is waiting at exit for thread \d+ "uploader", which is waiting for an event'
        rf" \(threading.Event\) at one_hang.py:{line} in upload \(a thread that is no daemon",
        said,
    )


def test_an_agent_that_leaves_meanwhile(
    program: StartProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found with an agent and without one when it is asked, it is looked at from outside."""
    target = program("one_hang", "event", PROBING="all")
    target.wait_for_output("ready")
    target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    members = find_members([str(target.pid)]).members
    assert target.run(str(target.pid), "detach").returncode == 0
    (verdict,) = diagnose(members, timeout_s=60)
    assert verdict.headline.startswith(f"process {target.pid} is waiting for an event")
    assert verdict.coverage == "asked 1 process: all answered"
    assert answer(target).startswith(f"PROCESS: process {target.pid} is waiting for an event")
