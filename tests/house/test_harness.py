"""No test can keep the others from running: what dies or hangs in a run is ended, and told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.stacks.work_done import children_of
from tests.harness import leftovers, sharing, terminals, warm, warm_server
from tests.harness.targets import DEADLINE_S, ROOT, clean_env, wait_until
from tests.harness.watch import Place, Watch, is_dead

ASLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture(scope="module")
def own_servers() -> Iterator[None]:
    """Warm Pythons of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm, "_servers", {})
        yield
        warm.stop()


@pytest.fixture
def begin(own_servers: None, tmp_path: Path) -> Iterator[Begin]:
    """Starts a program from a warm Python."""
    with (tmp_path / "out").open("wb") as out:
        yield Begin(tmp_path, out.fileno())


class Begin:
    """Starts a program from a warm Python."""

    def __init__(self, cwd: Path, out: int) -> None:
        self._cwd = cwd
        self._out = out

    def __call__(self, argv: list[str]) -> warm.Process:
        """Start it."""
        return warm.start(
            argv,
            cwd=self._cwd,
            env=clean_env(self._cwd),
            kind="plain",
            stdout=self._out,
            stderr=self._out,
        )


class Stopped(BaseException):
    """A test was stopped, as by its limit."""


def server() -> warm._Server:
    """The warm Python in use."""
    return warm._servers["plain"]


def assert_answers(begin: Begin) -> None:
    """A program can be started, and its end is told."""
    assert begin([sys.executable, "-c", "raise SystemExit(7)"]).wait(DEADLINE_S) == 7


def test_a_warm_python_outlives_the_thread_that_started_it(begin: Begin) -> None:
    """To the kernel a thread is a parent, whose end it could tell."""
    thread = threading.Thread(target=assert_answers, args=(begin,))
    thread.start()
    thread.join()
    first = server()
    assert_answers(begin)
    assert server() is first


def test_a_warm_python_that_was_killed_is_replaced(begin: Begin) -> None:
    """Its programs have ended with it, and can be cleaned up after; the next test has another."""
    process = begin(ASLEEP)
    os.kill(server().pid, signal.SIGKILL)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    process.kill()
    assert_answers(begin)


def test_a_warm_python_that_hangs_is_replaced(begin: Begin) -> None:
    """Whoever waits for it is told so in time."""
    process = begin(ASLEEP)
    server()._socket.settimeout(0.2)
    os.kill(server().pid, signal.SIGSTOP)
    with pytest.raises(warm.WarmPythonGone, match="plain gave no answer and is gone"):
        begin(ASLEEP)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    assert_answers(begin)


def test_a_test_that_is_stopped_while_it_asks_spoils_no_other(begin: Begin) -> None:
    """The answer that it did not wait for is nobody else's, and its process ends."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    assert_answers(begin)
    stopped = server().pid
    before = signal.signal(signal.SIGALRM, stop)
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    try:
        os.kill(stopped, signal.SIGSTOP)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Stopped):
            begin(ASLEEP)
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s)
        os.kill(stopped, signal.SIGCONT)
    assert_answers(begin)
    assert server().pid == stopped
    wait_until(lambda: not _running_children(stopped), "the end of what nobody waits for")


def test_whoever_dies_while_it_asks_harms_no_warm_python(begin: Begin) -> None:
    """A shell's command may be killed at any time, and so may what it has asked for."""
    assert_answers(begin)
    asked = server()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(asked.door))
        os.kill(asked.pid, signal.SIGSTOP)
        request = {"id": 1, "argv": ASLEEP, "env": {}, "cwd": "/", "session": False}
        socket.send_fds(client, [json.dumps(request).encode()], (0, 1, 2))
    os.kill(asked.pid, signal.SIGCONT)
    assert_answers(begin)
    assert server() is asked
    wait_until(lambda: not _running_children(asked.pid), "the end of what nobody waits for")


def test_who_died_has_the_machine_no_longer(tmp_path: Path) -> None:
    """Though a process lives on that it had forked; whoever waits goes on at once."""
    script = (
        "import os, sys, time\nfrom pathlib import Path\nfrom tests.harness import sharing\n"
        f"with sharing.turn(Path({str(tmp_path)!r}), alone=True):\n"
        "    pid = os.fork()\n    if pid: print(pid, flush=True)\n    time.sleep(600)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT, env=clean_env(tmp_path), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    holder.stdout.close()
    holder.kill()
    holder.wait()
    try:
        with sharing.turn(tmp_path, alone=True):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_worker_that_is_overdue_is_told_and_killed(tmp_path: Path) -> None:
    """Even one that is stopped; one that has said no limit is left alone."""
    workers = [subprocess.Popen(ASLEEP) for _ in range(2)]
    for name, worker, until in (("gw0", workers[0], 0.0), ("gw1", workers[1], None)):
        said = {"pid": worker.pid, "what": f"test of {name}", "until": until}
        (tmp_path / f"{name}.json").write_text(json.dumps(said))
    workers[0].send_signal(signal.SIGSTOP)
    told: list[str] = []
    watch = Watch(tmp_path, patience_s=0.2, interrupt=lambda: told.append("over"), tell=told.append)
    try:
        assert workers[0].wait(DEADLINE_S) == -signal.SIGKILL
        wait_until(lambda: "over" in told, "the end of a run whose dead worker nobody buries")
        assert told[0].startswith("\ngw0 hangs in test of gw0 and is ended.")
        others = [line for line in told if "hangs" not in line]  # told until it is dead
        assert [line.split(", and")[0] for line in others] == [
            "\ngw0 died in test of gw0",
            "over",
        ]
        assert workers[1].poll() is None
    finally:
        watch.stop()
        workers[1].kill()
        workers[1].wait()


SUITE = """
import time
import pytest

@pytest.fixture
def slow_to_go():
    yield
    time.sleep(600)

def test_one(slow_to_go):
    assert "a text" == "of a failure"

def test_two():
    pass
"""


def run_suite(tmp_path: Path, text: str) -> str:
    """What pytest prints of such a file of tests, by one worker and with a second for each test."""
    (tmp_path / "test_some.py").write_text(text)
    words = ["-q", "-n1", "--timeout=1", "-c", str(ROOT / "pyproject.toml"), "-ptests.conftest"]
    places = ["-pno:randomly", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *places],
        cwd=ROOT, env=clean_env(tmp_path), capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    return done.stdout


def test_a_clean_up_that_hangs_after_a_failure_ends(tmp_path: Path) -> None:
    """Pytest takes a test's limit away as it fails; the rest of the run goes on."""
    out = run_suite(tmp_path, SUITE)
    assert "gw0 hangs in test_some.py::test_one and is ended. It was here:" in out
    assert "slow_to_go (test_some.py:8)" in out, out
    before, _, _ = out.partition("gw0 hangs")
    assert "AssertionError: assert 'a text' == 'of a failure'" in before
    assert "1 passed" in out.splitlines()[-1]


SPOILT = """
import time
import pytest

@pytest.mark.parametrize("number", range(9))
def test_one(number, tmp_path_factory):
    spoilt = tmp_path_factory.getbasetemp().parent / "spoilt"  # by the first worker
    if not number:
        spoilt.write_text(tmp_path_factory.getbasetemp().name)
    if spoilt.read_text() == tmp_path_factory.getbasetemp().name:
        time.sleep(600)
"""


def test_a_worker_in_which_tests_run_out_of_time_is_replaced(tmp_path: Path) -> None:
    """Two in a row are enough: the others run elsewhere instead of waiting one after the other."""
    out = run_suite(tmp_path, SPOILT)
    assert "test_one[1], the second in a row that ran out of time, and is ended" in out, out
    assert "7 passed" in out.splitlines()[-1], out


def test_what_another_run_uses_was_not_left_behind_by_this(tmp_path: Path) -> None:
    """A folder in shared memory is in use as long as any process has something in it open."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        name = Path(folder).name
        assert name not in leftovers._held()
        with (Path(folder) / "x").open("w"):
            assert name in leftovers._held()


def test_a_worker_says_what_it_does(tmp_path: Path) -> None:
    """With its process, and until when it should be done; of what it said before nothing stays."""
    place = Place(tmp_path, "gw5")
    for what in ("a test with a longer name", "a test"):
        place.say(what, 60)
        said = json.loads((tmp_path / "gw5.json").read_text())
        assert (said["pid"], said["what"]) == (os.getpid(), what)
    assert [path.name for path in tmp_path.iterdir()] == ["gw5.json"]


def _running_children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    return [child for child in children_of(pid) if not is_dead(child)]


def test_a_command_ends_with_the_shell_that_is_killed(own_servers: None, tmp_path: Path) -> None:
    """What a block of a page leaves in the background is in the way of no later block."""
    forward = [sys.executable, "-IS", str(warm.HERE / "forward.py"), warm.door_of("plain")]
    env = clean_env(tmp_path / "home")
    with (
        (tmp_path / "out").open("wb") as out,
        subprocess.Popen(
            [*forward, "serve", "--listen", "127.0.0.1:0"], env=env, stdout=out, stderr=out
        ) as shell,
    ):
        card = tmp_path / "home" / "node.json"
        wait_until(card.exists, "the node server")
        pid = json.loads(card.read_text("utf-8"))["pid"]
        shell.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the node server to end")


def test_a_program_that_is_traced_holds_up_no_warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever traces it may keep it from its end: it is looked at again and again."""
    killed: list[int] = []

    def end_later(pid: int, options: int) -> tuple[int, int]:
        assert options == os.WNOHANG, "a wait without an end"
        return (0, 0) if killed.pop() else (pid, signal.SIGKILL)

    monkeypatch.setattr(os, "kill", lambda pid, _signal: killed.extend((0, pid)))
    monkeypatch.setattr(os, "waitpid", end_later)
    warm_server._end_left([7])
    assert warm_server._leaving == [7]
    assert [warm_server._reap(7), warm_server._reap(7)] == [None, -signal.SIGKILL]
    warm_server._leaving.clear()
    warm_server._ended.clear()


@pytest.mark.parametrize(
    ("sent", "is_over", "drawn", "rest"),
    [
        ("one\x1b[?2026htwo", False, "one", "\x1b[?2026htwo"),
        ("one\x1b[?2026htwo\x1b[?2026lthree", False, "one\x1b[?2026htwo\x1b[?2026lthree", ""),
        ("one\x1b[?2026htwo\x1b[?1049l", False, "one\x1b[?2026htwo\x1b[?1049l", ""),
        ("one\x1b[?2026htwo", True, "one\x1b[?2026htwo", ""),
        ("one\x1b[?20", False, "one", "\x1b[?20"),
    ],
)
def test_a_terminal_draws_no_half_picture(sent: str, is_over: bool, drawn: str, rest: str) -> None:
    """What is to be shown at once is, unless the command leaves the screen or ends in its midst."""
    assert terminals.whole(sent.encode(), is_over=is_over) == (drawn, rest.encode())
    assert terminals.whole("ж".encode()[:1], is_over=is_over) == ("", "ж".encode()[:1])
