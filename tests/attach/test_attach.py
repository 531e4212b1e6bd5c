"""The agent comes into a process that was never prepared, works as always, and leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import probing
from probing.attach import attach as attach_module
from probing.attach.attach import attach
from probing.attach.injectors.names import NAMES
from probing.attach.preflight import find_obstacle
from probing.errors import (
    AttachFailed,
    AttachRefused,
    AttachWaiting,
    NoSuchProcess,
    NotAnswering,
    UsageError,
)
from probing.linux import process
from probing.linux.permission import Access, explain
from tests.harness.targets import DEADLINE_S, ROOT, Target, program_path, wait_until

Start = Callable[..., Target]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts programs as users do who never heard of probing; `probing.connect` finds them."""
    targets: list[Target] = []
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))

    def begin(program: str | Path, *args: str, python: str = sys.executable) -> Target:
        cwd = tmp_path / str(len(targets))
        cwd.mkdir()
        script = program if isinstance(program, Path) else program_path(program)
        target = Target([python, str(script), *args], tmp_path / "home", cwd)
        targets.append(target)
        return target

    yield begin
    for target in targets:
        target.reap()


def wait_state(target: Target, letter: str) -> None:
    """Wait until the main thread is in that state of the kernel's."""
    wait_until(lambda: process.state(target.pid) == letter, f"state {letter}")


@pytest.mark.anypython
def test_from_stranger_to_probed_and_back(start: Start) -> None:
    """After attach everything works, a second one does nothing, and detach leaves a stranger."""
    target = start("stuck", "sleep")
    target.wait_for_output("ready")
    refused = target.run(str(target.pid), "eval", "1")
    assert refused.returncode == 3
    assert f"`probing attach {target.pid}`" in refused.stderr
    done = target.run("attach", str(target.pid))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"the agent is in process {target.pid} (by " in done.stdout
    assert target.run(str(target.pid), "eval", "6 * 7").stdout == "42\n"
    assert (
        target.run(str(target.pid), "query", "--format=jsonl", "SELECT 1 AS x").stdout
        == '{"x":1}\n'
    )
    again = target.run(str(target.pid), "attach")
    assert (again.returncode, again.stdout) == (0, f"process {target.pid} has an agent already\n")
    left = target.run("detach", str(target.pid))
    assert left.returncode == 0, left.stderr
    wait_until(lambda: target.find_folder() is None, "the folder to go")
    assert target.run(str(target.pid), "eval", "1").returncode == 3
    # Detach has answered by the client's count only; the process is as good as new.
    assert attach(target.pid).method in NAMES
    assert probing.connect(target.pid).eval("2 + 2").value == "4"
    assert target.output == "ready\n"


@pytest.mark.anypython
def test_a_process_whose_threads_are_greenlets_is_attached_to(start: Start) -> None:
    """As under gevent: what starts a thread there starts none, and the agent comes all the same."""
    target = start("patched")
    target.wait_for_output("ready")
    assert attach(target.pid).method in NAMES
    assert probing.connect(target.pid).eval("6 * 7").value == "42"


@pytest.mark.anypython
def test_one_command_attaches_and_asks(start: Start) -> None:
    """`--attach` puts the agent in first, says so, and is nothing to an agent that is there."""
    target = start("stuck", "event")
    target.wait_for_output("ready")
    done = target.run(str(target.pid), "query", "--format=jsonl", "--attach", "SELECT 2 AS x")
    assert (done.returncode, done.stdout) == (0, '{"x":2}\n')
    assert "the agent is in process" in done.stderr
    done = target.run(str(target.pid), "tables", "--attach")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.torch
@pytest.mark.parametrize("method", ["auto", "pending"])
def test_a_running_training_is_recorded_from_its_next_step_on(start: Start, method: str) -> None:
    """Whole steps are recorded, modules have their names, and eval knows the model."""
    script = ROOT / "examples" / "train_gpt.py"
    target = start(script, "--layers", "2", "--dim", "64", "--context", "32")
    target.wait_for_output("step")

    assert attach(target.pid, how=method).method in (NAMES if method == "auto" else [method])
    target.wait_for_step(0)
    target.wait_for_step(target.step() + 3)
    job = probing.connect(target.pid)
    sql = "SELECT step FROM python.steps WHERE duration IS NOT NULL ORDER BY step LIMIT 2"
    whole = [row["step"] for row in job.query(sql).to_pylist()]
    assert whole[0] >= 1, "steps are counted from the script's start, by the optimizer's own count"
    assert whole[1] == whole[0] + 1
    sql = (
        "SELECT step, array_agg(module ORDER BY start_ns) AS modules FROM python.torch_trace"
        f" WHERE stage = 'forward' AND step IN ({whole[0]}, {whole[1]}) GROUP BY step ORDER BY step"
    )
    first, second = job.query(sql).to_pylist()
    assert first["modules"] == second["modules"]
    assert {"GPT", "blocks.0.attn"} <= set(first["modules"])
    assert job.eval("type(model).__name__").value == "'GPT'"


def look_too_late(pid: int) -> str | None:
    """As `look_at_gil` on a busy machine."""
    raise NotAnswering(f"process {pid}", 1.0)


@pytest.mark.anypython
def test_an_agent_waits_for_the_lock_and_starts_by_itself(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a C call keeps the lock it is said who keeps it; then the agent is there."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    target = start("until_told", "keeping", str(fifo), "and wait")
    target.wait_for_output("ready")
    wait_state(target, "S")
    done = target.run("attach", str(target.pid), "--timeout", "1")
    assert done.returncode == 5, done
    assert "cannot start yet: thread" in done.stderr
    assert "holds the interpreter lock in <module> (until_told.py:" in done.stderr
    with pytest.raises(AttachWaiting):
        attach(target.pid)
    assert len(process.threads(target.pid)) == 2  # the second attach has put in no second one
    with monkeypatch.context() as late:
        late.setattr(attach_module, "look_at_gil", look_too_late)
        with pytest.raises(AttachWaiting):
            attach(target.pid, timeout_s=0.5)
    assert len(process.threads(target.pid)) == 2  # nor where nobody could look who keeps the lock
    listed = json.loads(target.run("list", "--format", "json").stdout)
    assert [row["state"] for row in listed] == ["attaching"]
    assert target.run(str(target.pid), "eval", "1").returncode == 5
    assert process.state(target.pid) == "S"
    fifo.write_bytes(b"x")
    target.wait_for_output("told 1 b'x'")
    target.wait_for_agent()
    assert probing.connect(target.pid).eval("count").value == "1"


@pytest.mark.anypython
def test_a_program_ends_as_if_nobody_had_been_there(start: Start, tmp_path: Path) -> None:
    """Output and exit code of a program without threads are its own, the main thread its main."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    target = start("until_told", "freeing", str(fifo))
    target.wait_for_output("ready")
    wait_state(target, "S")
    attach(target.pid, how="thread")
    code = "import threading; print(threading.main_thread().ident)"
    assert probing.connect(target.pid).eval(code).output.strip().isdecimal()
    fifo.write_bytes(b"x")
    assert target.process.wait(DEADLINE_S) == 0
    assert target.output == "ready\ntold 1 b'x'\nTrue\n"


@pytest.mark.anypython
def test_the_agent_comes_from_the_operators_own_packages(start: Start) -> None:
    """Into a bare interpreter of the same version the operator's are lent, and leave no trace."""
    bare = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}")
    probe = "import importlib.util; print(importlib.util.find_spec('aiohttp'))"
    assert subprocess.run([bare, "-c", probe], capture_output=True).stdout == b"None\n"
    target = start("stuck", "sleep", python=bare)
    target.wait_for_output("ready")
    attach(target.pid)
    job = probing.connect(target.pid)
    paths = job.eval("import sys; print(*sys.path, sep=chr(10))").output
    places = {str(Path(probing.__file__).parent.parent), *[p for p in sys.path if "site-pack" in p]}
    assert not places - {str(ROOT)} & set(paths.splitlines())
    assert job.eval("__import__('probing').__name__").value == "'probing'"
    job.detach()
    wait_until(lambda: target.find_folder() is None, "the folder to go")
    assert process.state(target.pid) == "S"


@pytest.mark.anypython
def test_a_process_with_a_run_directory_of_its_own_is_found(start: Start, tmp_path: Path) -> None:
    """The agent of a process that was started elsewhere answers by its pid."""
    target = start("stuck", "sleep")
    target.wait_for_output("ready")
    attach(target.pid)
    elsewhere = target.run(str(target.pid), "eval", "'here'", PROBING_HOME=str(tmp_path / "other"))
    assert elsewhere.stdout == "'here'\n"


@pytest.mark.anypython
def test_what_cannot_be_attached_to_says_why(start: Start) -> None:
    """Each obstacle is one sentence with the right exit code and the way out."""
    target = start("stuck", "stopped")
    target.wait_for_output("ready")
    wait_state(target, "T")
    done = target.run("attach", str(target.pid))
    assert (done.returncode, f"`kill -CONT {target.pid}`" in done.stderr) == (4, True)
    os.kill(target.pid, signal.SIGCONT)
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        with pytest.raises(AttachRefused, match="not a Python process"):
            attach(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()
    with pytest.raises(NoSuchProcess):
        attach(sleeper.pid)
    with pytest.raises(AttachRefused, match="this very process"):
        attach(os.getpid())
    with pytest.raises(UsageError, match="no way in called 'gdb'"):
        attach(target.pid, how="gdb")
    assert target.run("attach").returncode == 2
    assert "attach needs an endpoint" in target.run("attach").stderr
    assert target.run("attach", "127.0.0.1:9").returncode == 2


@pytest.mark.anypython
def test_a_process_under_a_debugger_is_left_alone(start: Start) -> None:
    """Who traces the process is named."""
    target = start("stuck", "sleep")
    target.wait_for_output("ready")
    code = (
        "import sys, time; from probing.attach.injectors.borrowing.tracing import TracedThread;"
        f"t = TracedThread({target.pid}, {target.pid}); t.stop(); print('held', flush=True);"
        "sys.stdin.read()"
    )
    tracer = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert tracer.stdout is not None
    assert tracer.stdout.readline() == b"held\n"
    obstacle = find_obstacle(target.pid)
    assert f"process {tracer.pid} (" in str(obstacle)
    assert "is tracing it" in str(obstacle)
    tracer.communicate(b"")
    assert find_obstacle(target.pid) is None


@pytest.mark.anypython
def test_every_way_that_was_closed_is_named(start: Start) -> None:
    """Where no way is open nothing is changed, and each has its reason."""
    target = start("stuck", "gil_spin")
    target.wait_for_output("ready")
    wait_state(target, "R")
    with pytest.raises(AttachFailed, match="thread: none of its threads waits in a system call"):
        attach(target.pid, how="thread")
    assert not list(target.home.glob(f"{target.pid}-*"))
    assert target.process.poll() is None


@pytest.mark.anypython
def test_unsafe_eval_runs_where_the_lock_is_held(start: Start) -> None:
    """It gives value, output, error and time-out of code that nobody else could run."""
    target = start("stuck", "gil_sleep")
    target.wait_for_output("ready")
    wait_state(target, "S")
    refused = target.run(str(target.pid), "eval", "1")
    assert refused.returncode == 3
    pid = str(target.pid)
    done = target.run(pid, "eval", "--unsafe", "print('é', flush=True); LIFETIME_S")
    assert (done.returncode, done.stdout) == (0, "é\n600\n")
    assert "note: the code runs in the thread that holds the interpreter lock" in done.stderr
    assert target.output == "ready\n"
    assert not list(target.home.glob(f"{pid}-*"))


@pytest.mark.anypython
def test_unsafe_eval_tells_what_went_wrong(start: Start) -> None:
    """An exception is the code's own; code without an end is ended; no holder is a refusal."""
    target = start("stuck", "gil_thread")
    target.wait_for_output("ready")
    job = probing.connect(target.pid)
    wait_until(lambda: {"S"} == {t.state for t in process.threads(target.pid).values()}, "quiet")
    result = job.eval("1 / 0", unsafe=True)
    assert result.error_type == "ZeroDivisionError"
    assert result.error is not None
    assert result.error.startswith('Traceback (most recent call last):\n  File "<eval>", line 1')
    free = start("stuck", "sleep")
    free.wait_for_output("ready")
    wait_state(free, "S")
    with pytest.raises(AttachFailed, match="no thread holds the interpreter lock"):
        probing.connect(free.pid).eval("1", unsafe=True)
    endless = start("stuck", "gil_sleep")
    endless.wait_for_output("ready")
    wait_state(endless, "S")
    ended = probing.connect(endless.pid).eval("while True: pass", timeout_s=0.2, unsafe=True)
    assert ended.error_type == "EvalInterrupted"


@pytest.mark.anypython
def test_list_shows_processes_without_an_agent(start: Start) -> None:
    """With --all, unprepared processes are listed: with torch or not, attach possible or not."""
    stopped, asleep = start("stuck", "stopped"), start("stuck", "sleep")
    for target in (stopped, asleep):
        target.wait_for_output("ready")
    wait_state(stopped, "T")
    own = "61.25"  # by which this command is told from those of other tests
    done = asleep.run("list", "--all", "--format", "json", "--timeout", own)
    rows = {row["pid"]: row for row in json.loads(done.stdout)}
    assert rows[asleep.pid]["obstacle"] is None
    assert rows[asleep.pid]["has_torch"] is False
    assert "stopped by a signal" in rows[stopped.pid]["obstacle"]
    assert not [row for row in rows.values() if own in row["command"]]
    assert asleep.pid not in {
        r["pid"] for r in json.loads(asleep.run("list", "--format", "json").stdout or "[]")
    }


@pytest.mark.anypython
@pytest.mark.parametrize(
    ("access", "reason", "way_out"),
    [
        (Access(1000, 1001, may_trace=False, yama_scope=None), "user 1001", "sudo -u '#1001'"),
        (Access(1000, 1000, may_trace=False, yama_scope=1), "ptrace_scope is 1", "ptrace_scope=0"),
        (Access(1000, 1000, may_trace=False, yama_scope=2), "into by root", "sudo probing"),
        (Access(0, 0, may_trace=True, yama_scope=3), "ptrace_scope is 3", "PROBING=1"),
        (Access(0, 1000, may_trace=False, yama_scope=1), "SYS_PTRACE", "--cap-add SYS_PTRACE"),
        (Access(1000, 1000, may_trace=False, yama_scope=0), "PR_SET_DUMPABLE", "sudo probing"),
    ],
)  # fmt: skip
def test_the_missing_permission_is_named(access: Access, reason: str, way_out: str) -> None:
    """Whatever the kernel's reason, it is said, with the command that grants it."""
    error = explain(4242, access)
    assert error.exit_code == 4
    assert reason in error.message
    assert "4242" in error.message
    assert way_out in error.help
