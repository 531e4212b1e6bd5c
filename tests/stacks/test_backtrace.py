"""Stacks of real processes that are stuck, with the agent inside and from outside alone."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import probing
from probing.agent.recording.safe_points import AGENT_THREAD_PREFIX
from probing.errors import NotAnswering, NotProbed, ProcessEnded
from probing.linux import process
from probing.messages.common import Backtrace, Frame, ThreadStack
from probing.reach import ladder
from probing.stacks import py_spy, text as stacks
from tests.harness.targets import DEADLINE_S, Target, program_path, wait_until
from tests.programs import stuck

pytestmark = pytest.mark.anypython

GIL_HELD = {"gil_sleep", "gil_spin", "gil_regex", "gil_thread", "mutex_vs_gil", "d_state_gil"}
UNINTERRUPTIBLE = {"d_state", "d_state_gil", "d_state_thread"}
EITHER = {"gc", "in_malloc", "busy"}
"""Here the agent gets to answer in time, or does not, as the machine's load has it."""

_KERNEL = r"in an uninterruptible wait for a new process to begin( \(\w+\))?"
WAITS = {
    "busy": "running( Python code)?",
    "sleep": "sleeping",
    "lock": "waiting for a lock",
    "event": r"waiting for an event \(threading.Event\)",
    "condition": r"waiting for a condition \(threading.Condition\)",
    "semaphore": "waiting for a semaphore",
    "barrier": "waiting at a barrier for other threads",
    "queue": "waiting for an item from a queue",
    "simple_queue": "waiting for an item from a queue",
    "join": r"waiting for a thread to end \(join\)",
    "future": "waiting for a future",
    "socket": "waiting for data from a socket",
    "accept": "waiting for a connection to a socket",
    "pipe": "waiting for data from a pipe",
    "file_lock": "waiting for a file lock",
    "record_lock": "waiting for a file lock",
    "open_fifo": "opening a file",
    "select": r"waiting for input or output \(p?select6?\)",
    "subprocess": "waiting for a child process",
    "mp_queue": "waiting for an item from a queue between processes",
    "mp_process": "waiting for a worker process to end",
    "asyncio": "idle in its asyncio event loop",
    "c_sleep": "sleeping",
    "gil_sleep": "sleeping",
    "gil_spin": "running|in C code .*",
    "gil_regex": r"in a regular expression \(re.match\)",
    "gil_thread": r"waiting for the interpreter lock \(GIL\)",
    "mutex_vs_gil": r"waiting for a (lock or a condition \(futex\)|C mutex \(pthread_mutex_lock\))",
    "d_state": _KERNEL,
    "d_state_gil": _KERNEL,
    "d_state_thread": "sleeping",
    "undumpable": "sleeping",
    "stopped": "stopped by a signal",
    "main_done": "waiting at exit for the threads that are no daemons",
    "gc": "collecting garbage|running( Python code)?",
    "in_malloc": r"running( Python code)?|in the C allocator \(\w+\)",
}
"""What the main thread of each mode of `stuck` waits for."""


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """A stuck process, and how it is asked."""

    target: Target
    job: probing.Process

    def stuck_trace(self, mode: str, sources: set[str]) -> Backtrace:
        """Its stacks, once it is where its mode has it and the wanted one answers."""
        func = "_shutdown" if mode == "main_done" else mode

        def look() -> Backtrace | None:
            trace = self.job.backtrace()
            main = trace.threads[0]
            funcs = [frame.func for frame in main.frames]
            is_there = func in funcs and re.fullmatch(WAITS[mode], main.waiting or "")
            is_held = any(thread.holds_gil for thread in trace.threads)
            if is_held and mode not in GIL_HELD | EITHER | {"stopped"}:
                return None  # who is about to wait lets go of the lock only then
            return trace if is_there and trace.source in sources else None

        return wait_until(look, f"{mode}, seen by one of {sources}")


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[..., Target]
) -> Iterator[Callable[..., Stuck]]:
    """Starts `stuck` in some mode, with an agent or as a stranger."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    strangers: list[Target] = []

    def begin(mode: str, *, agent: bool) -> Stuck:
        if agent:
            target = program("stuck", mode, PROBING="all")
            target.wait_for_agent()
        else:
            cwd = tmp_path / f"stranger-{len(strangers)}"
            cwd.mkdir()
            argv = [sys.executable, str(program_path("stuck")), mode]
            target = Target(argv, tmp_path / "home", cwd)
            strangers.append(target)
        target.wait_for_output("ready")
        return Stuck(target=target, job=probing.connect(target.pid))

    yield begin
    for target in strangers:
        target.reap()


def states(pid: int) -> set[str]:
    """The states of all threads; running and sleeping are one, for who is busy does both."""
    return {fact.state.replace("R", "S") for fact in process.threads(pid).values()}


def check_unharmed(stuck_one: Stuck, mode: str) -> None:
    """The process is as it was: alive, in its state, and no call has come back."""
    expected = {"S", "D"} if mode in UNINTERRUPTIBLE else {"T"} if mode == "stopped" else {"S"}
    target = stuck_one.target
    wait_until(lambda: target.process.poll() is None and states(target.pid) <= expected, mode)
    assert target.output == "ready\n"


@pytest.mark.parametrize("mode", stuck.MODES)
def test_from_outside(mode: str, start: Callable[..., Stuck]) -> None:
    """A process that knows nothing of probing tells where it is stuck, in words, unharmed."""
    stranger = start(mode, agent=False)
    trace = stranger.stuck_trace(mode, {"py-spy"})
    holder = trace.note or ""
    if mode in GIL_HELD - {"gil_thread"}:
        assert trace.threads[0].holds_gil
        assert f'thread {stranger.target.pid} "MainThread" holds the interpreter lock in' in holder
        assert f"{'_vfork' if mode == 'd_state_gil' else mode} (stuck.py:" in holder
    elif mode not in {"gil_thread", "stopped", *EITHER}:
        assert not any(thread.holds_gil for thread in trace.threads)
    assert stranger.job.notes() == []
    check_unharmed(stranger, mode)


@pytest.mark.parametrize("mode", stuck.MODES)
def test_with_an_agent(mode: str, start: Callable[..., Stuck]) -> None:
    """The agent tells it while it can; when it cannot, the outside tells it and the notes why."""
    probed = start(mode, agent=True)
    silent = mode in GIL_HELD | {"stopped"}
    sources = {"agent", "py-spy"} if mode in EITHER else {"py-spy"} if silent else {"agent"}
    trace = probed.stuck_trace(mode, sources)
    assert not any(thread.name.startswith(AGENT_THREAD_PREFIX) for thread in trace.threads)
    if silent:
        assert "its stacks were read from outside" in probed.job.notes()[-1]
    check_unharmed(probed, mode)


def is_being_started(thread: ThreadStack) -> bool:
    """Whether a thread has not come to the function that it is to run."""
    python = [frame.file for frame in thread.frames if frame.kind == "python"]
    return all(Path(file).name == "threading.py" for file in python)


def test_a_silent_process_names_the_c_function(start: Callable[..., Stuck]) -> None:
    """Who holds the interpreter lock, where, and in which C function; eval's refusal says it."""
    probed = start("mutex_vs_gil", agent=True)
    pid = probed.target.pid
    trace = probed.stuck_trace("mutex_vs_gil", {"py-spy"})
    # A thread that the agent was starting as the lock was taken for ever has no name yet.
    begun = [thread for thread in trace.threads if not is_being_started(thread)]
    assert [thread.name for thread in begun] == ["MainThread", "mutex-holder"], trace
    main, worker = begun
    holder = f'thread {pid} "MainThread" holds the interpreter lock in mutex_vs_gil (stuck.py:'
    assert holder in (trace.note or "")
    assert (trace.note or "").endswith("), in C function pthread_mutex_lock")
    assert {"native", "python"} == {frame.kind for frame in main.frames}
    assert worker.waiting == "waiting for the interpreter lock (GIL)"
    assert not worker.holds_gil
    with pytest.raises(NotAnswering) as caught:
        probed.job.eval("1")
    assert holder in caught.value.message
    rows = probed.job.query(
        "SELECT thread_name, waiting, holds_gil, source FROM python.threads"
        " WHERE thread_name IN ('MainThread', 'mutex-holder') ORDER BY is_main"
    ).to_pylist()
    assert rows[0]["thread_name"] == "mutex-holder"
    assert [row["holds_gil"] for row in rows] == [False, True]
    assert rows[1]["waiting"] == "waiting for a C mutex (pthread_mutex_lock)"
    kinds = "SELECT DISTINCT kind FROM python.backtrace WHERE source = 'py-spy' ORDER BY kind"
    assert [row["kind"] for row in probed.job.query(kinds).to_pylist()] == ["native", "python"]


@pytest.mark.parametrize("agent", [True, False], ids=["agent", "stranger"])
@pytest.mark.parametrize("mode", ["d_state_thread", "stopped"])
def test_nothing_waits_for_a_thread_that_cannot_pause(
    mode: str, agent: bool, start: Callable[..., Stuck]
) -> None:
    """Native frames beside a stopped or uninterruptible thread are left out, not awaited.

    A dump that pauses the process would be waiting for that thread until its time is up.
    """
    one = start(mode, agent=agent)
    one.stuck_trace(mode, {"agent", "py-spy"})
    trace = one.job.backtrace(native=True)
    assert {frame.kind for thread in trace.threads for frame in thread.frames} == {"python"}
    notes = " ".join(one.job.notes())
    assert "would wait for it for ever" in notes
    assert "did not answer within 10 s" not in notes
    check_unharmed(one, mode)


def test_native_frames_are_merged_into_what_the_agent_says(start: Callable[..., Stuck]) -> None:
    """Names, daemon flags and source lines are the agent's, C functions py-spy's."""
    probed = start("lock", agent=True)
    probed.stuck_trace("lock", {"agent"})

    def merged() -> Backtrace | None:
        trace = probed.job.backtrace(native=True)
        return trace if trace.source == "agent+py-spy" else None

    main, other = wait_until(merged, "an answer of both").threads
    assert (other.name, other.daemon, main.daemon) == ("second-then-first", True, False)
    own = [frame for frame in main.frames if frame.kind == "python"]
    assert (own[0].func, own[0].line) == ("lock", "second.acquire()")
    assert main.frames[0].kind == "native"
    assert "waiting for a lock" == main.waiting == other.waiting
    assert main.holds_gil is False
    check_unharmed(probed, "lock")


@pytest.mark.parametrize("agent", [True, False], ids=["agent", "stranger"])
def test_locals_without_asking_the_values(agent: bool, start: Callable[..., Stuck]) -> None:
    """Local variables come as short texts, and no representation of the job's own runs for it."""
    one = start("c_sleep", agent=agent)
    one.stuck_trace("c_sleep", {"agent"} if agent else {"py-spy"})
    frames = one.job.backtrace(locals=True).threads[0].frames
    main = next(frame for frame in frames if frame.func == "main")
    values = {local.name: local.value for local in main.locals or ()}
    assert values["rank"] == "3"
    assert values["loss"] == "0.125"
    assert "c_sleep" in values["mode"]
    assert "Secretive" in values["secret"]
    assert all(frame.locals is None for frame in one.job.backtrace().threads[0].frames)
    check_unharmed(one, "c_sleep")


def test_formats(start: Callable[..., Stuck]) -> None:
    """Text says the wait in the heading, JSON has every field, folded is one line per stack."""
    stranger = start("gil_thread", agent=False)
    stranger.stuck_trace("gil_thread", {"py-spy"})
    pid = str(stranger.target.pid)
    says = "waiting for the interpreter lock (GIL)"

    def shown(style: str, wanted: str) -> str:
        def ask() -> str | None:
            text = stranger.target.run(pid, "backtrace", "--format", style).stdout
            return text if wanted in text else None

        return wait_until(ask, f"{wanted} in {style}")

    head, *threads = shown("text", says).split("\n\n")
    assert '"gil-holder" holds the interpreter lock in gil_sleep' in head
    assert threads[-1].splitlines()[0].endswith(f": {says}")
    assert ", holds the GIL, " in threads[0].splitlines()[0]
    shown("json", f'"waiting": "{says}"')
    folded = shown("folded", "nanosleep (libc").splitlines()
    assert len(folded) == 2
    place = r" \(stuck\.py:\d+\);"
    assert re.fullmatch(rf"MainThread;.*<module>{place}main{place}gil_thread{place}.* 1", folded[0])
    assert re.fullmatch(rf"gil-holder;.*gil_sleep{place}.*nanosleep \(libc.*\) 1", folded[1])


def drop_the_right_to_trace() -> None:
    """Called in a child: from the next program on, it may not trace what is not its own."""
    ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE


@pytest.mark.parametrize("agent", [True, False], ids=["agent", "stranger"])
def test_where_ptrace_is_refused_the_kernel_still_tells(
    agent: bool, start: Callable[..., Stuck]
) -> None:
    """Without the permission to read its memory: states, and which permission is missing."""
    one = start("undumpable", agent=agent)
    target = one.target
    wait_until(lambda: os.stat(f"/proc/{target.pid}/mem").st_uid == 0, "the refusal")
    if agent:
        os.kill(target.pid, signal.SIGSTOP)
        wait_until(lambda: stacks.is_stopped(target.pid), "the stop")

    def ask() -> str | None:
        done = subprocess.run(
            [sys.executable, "-m", "probing", str(target.pid), "backtrace"],
            env=target.env,
            cwd=target.cwd,
            preexec_fn=drop_the_right_to_trace,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout if "seen by the kernel alone" in done.stdout else None

    shown = wait_until(ask, "an answer of the kernel alone")
    assert "no permission: " in shown
    assert "SYS_PTRACE" in shown if os.getuid() == 0 else "sudo" in shown
    assert ("stopped by a signal" if agent else "sleeping") in shown
    assert "no Python frame" in shown


def test_what_is_no_python_process_is_said_so(start: Callable[..., Stuck]) -> None:
    """A process without an interpreter, and one that is gone, are errors with a sentence."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            with pytest.raises(NotProbed, match="not a Python process"):
                ladder.backtrace_of_stranger(sleeper.pid, [])
        finally:
            sleeper.kill()
    stranger = start("sleep", agent=False)
    stranger.target.kill()
    with pytest.raises((NotProbed, ProcessEnded)):
        stranger.job.backtrace()


def test_py_spy_is_given_up_when_its_time_is_up(start: Callable[..., Stuck]) -> None:
    """A dump that waits for a thread in state D ends with its limit, and hurts nobody."""
    stranger = start("d_state", agent=False)
    stranger.stuck_trace("d_state", {"py-spy"})
    began = time.monotonic()
    with pytest.raises(NotAnswering, match=r"within 0\.5 s"):
        py_spy.take(stranger.target.pid, py_spy.Dump(pause=True, timeout_s=0.5))
    assert time.monotonic() - began < DEADLINE_S
    check_unharmed(stranger, "d_state")


def test_the_holder_of_the_interpreter_lock(start: Callable[..., Stuck]) -> None:
    """It is named with its place; where the lock is free, nobody is."""
    stranger = start("gil_regex", agent=False)
    stranger.stuck_trace("gil_regex", {"py-spy"})
    clause = wait_until(lambda: ladder.who_holds_gil(stranger.target.pid), "a look in time")
    assert f'thread {stranger.target.pid} "MainThread" holds the interpreter lock' in clause
    assert re.search(r" in match \(re(/__init__)?.py:\d+\), called from gil_regex \(stuck", clause)
    sleeper = start("c_sleep", agent=False)
    sleeper.stuck_trace("c_sleep", {"py-spy"})
    assert ladder.who_holds_gil(sleeper.target.pid) is None


def frame(func: str, lineno: int = 1, kind: str = "python", file: str = "/x/a.py") -> Frame:
    """A frame."""
    return Frame(func=func, file=file, lineno=lineno, kind=kind)


def thread(number: int, *frames: Frame, **more: object) -> ThreadStack:
    """A thread."""
    name = f"t{number}"
    return ThreadStack(thread_id=number, name=name, is_main=False, frames=frames, **more)  # type: ignore[arg-type]


def test_merging_follows_the_stack_from_its_root() -> None:
    """Frames are the same as long as their functions are; below the first other one, py-spy's."""
    inside = [thread(1, frame("C.leaf", 5), frame("C.mid", 7), frame("root", 9), daemon=True)]
    outside = [
        thread(
            1,
            frame("read", kind="native"),
            frame("other", 3),
            frame("mid", 8),
            frame("root", 9),
            frame("start", kind="native"),
            holds_gil=True,
        )
    ]
    (merged,) = stacks.merge(inside, outside)
    assert [f.func for f in merged.frames] == ["read", "other", "C.mid", "root", "start"]
    assert [f.lineno for f in merged.frames] == [1, 3, 8, 9, 1]
    assert (merged.daemon, merged.holds_gil) == (True, True)


def test_merging_keeps_threads_that_only_one_saw() -> None:
    """A thread that ended or began in between is kept if it has anything of Python in it."""
    inside = [thread(1, frame("a"))]
    outside = [thread(2, frame("b")), thread(3, frame("c", kind="native"))]
    assert [t.thread_id for t in stacks.merge(inside, outside)] == [1, 2]


def test_the_agents_threads_go_by_one_name() -> None:
    """What the outside takes for a thread of the agent is what the agent calls its threads."""
    assert stacks.AGENT_THREAD_PREFIX == AGENT_THREAD_PREFIX
