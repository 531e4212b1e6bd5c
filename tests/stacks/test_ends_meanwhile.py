"""A process that ends, stops or holds the interpreter lock while somebody asks it."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import probing
from probing.errors import ProbingError
from probing.linux.host_memory import sql_workers
from probing.linux.process import facts as process_facts
from probing.messages.about.eval import EvalRequest
from probing.messages.common import QueryRequest
from probing.messages.limits import ANSWER_BYTES
from probing.reach.address import Address
from probing.reach.transport import ask, open_answer
from probing.stacks.work_done import children_of
from tests.faults import Reached
from tests.harness.targets import DEADLINE_S, Target, start_program, stop, wait_until

LATE_S = 15.0
"""How much longer than without us an end may take: 2 s of ours, and a busy machine."""


class Asker(threading.Thread):
    """One who asks, and waits for whatever comes of it.

    Attributes:
        code: The code of the error that came; "answered" where there was none.
    """

    def __init__(self, question: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.code = ""
        self._question = question
        self.start()

    def run(self) -> None:
        """Ask."""
        try:
            self._question()
        except ProbingError as error:
            self.code = error.code
        else:
            self.code = "answered"


class Obedient:
    """A process that ends when its orders end."""

    def __init__(self, cwd: Path, program: str = "obeying", *words: str, **extra: str) -> None:
        os.mkfifo(cwd / "orders")
        home = cwd / "home"
        self.target = start_program(program, *words, "orders", home=home, cwd=cwd, **extra)
        if extra.get("PROBING") != "0":
            self.target.wait_for_agent()
        self.target.wait_for_output("ready")
        self._orders = os.open(cwd / "orders", os.O_WRONLY)

    def end(self) -> float:
        """Have it end; returns how many seconds that took."""
        began = time.monotonic()
        os.close(self._orders)
        self.target.process.wait(DEADLINE_S)
        return time.monotonic() - began


@pytest.fixture
def obedient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Obedient]:
    """A process that ends when it is told to."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    started = Obedient(tmp_path)
    yield started
    started.target.reap()


def endless_eval(target: Target) -> object:
    """Code that loops."""
    return probing.connect(target.pid).eval("while True: pass", now=True, timeout_s=DEADLINE_S)


def sleeping_eval(target: Target) -> object:
    """Code that blocks."""
    code = "import time; time.sleep(600)"
    return probing.connect(target.pid).eval(code, now=True, timeout_s=DEADLINE_S)


def endless_sql(target: Target) -> object:
    """A statement that does not end, by the agent, as from another machine."""
    sql = "SELECT count(*) FROM range(100_000_000_000) WHERE hash(range) = 0"
    here = Address(path=target.folder.socket)
    return ask(here, "query", body=QueryRequest(sql=sql), timeout_s=DEADLINE_S)


@pytest.mark.torch
@pytest.mark.fault("T3")
@pytest.mark.parametrize("asked", [endless_eval, sleeping_eval, endless_sql])
def test_it_ends_while_it_is_asked(
    asked: Callable[[Target], object], obedient: Obedient, fault: Reached
) -> None:
    """Exit code and output are as without us, and so is when; who asks is told."""
    target = obedient.target
    asker = Asker(lambda: asked(target))
    wait_until(lambda: is_at_work(target, asked), "the question to be in hand")
    late_s = obedient.end()
    name = asked.__name__.replace("_", " ")
    fault.equals(f"{name}: exit code and output", (0, "ready\n"),
                 (target.process.returncode, target.output))  # fmt: skip
    fault.at_most(f"{name}: the end", LATE_S, late_s, "s")
    asker.join(DEADLINE_S)
    told = {"process_ended", "connection_lost", "sql_worker_died", "answered"}
    fault.holds(f"{name}: who asks", "is told", asker.code or "waits", is_kept=asker.code in told)


ENDS = {
    "normal": 0,
    "exception": 1,
    "sys.exit(3)": 3,
    "os._exit(4)": 4,
    "SIGTERM": -signal.SIGTERM,
    "SIGINT": -signal.SIGINT,
}
"""The ways to exit, and the exit code of each."""
_ROWS = 20_000
_TOLD = {"answered", "connection_lost", "not_probing", "sql_worker_died"}


def sleeping_code(here: Address, _: Target, in_hand: threading.Event) -> None:
    """An eval that blocks."""
    body = EvalRequest(code="import time; time.sleep(600)", now=True, timeout_s=600)
    in_hand.set()  # as good as: whether it runs is seen among the jobs
    ask(here, "eval", body=body, timeout_s=DEADLINE_S)


def unread_rows(here: Address, target: Target, in_hand: threading.Event) -> None:
    """An answer of which all but the beginning is read when the process has ended."""
    sql = f"SELECT range, repeat('x', 1000) FROM range({_ROWS})"
    body = QueryRequest(sql=sql)
    with open_answer(here, "query", body=body, timeout_s=DEADLINE_S) as answer:
        begin = answer.response.read(1)
        in_hand.set()
        target.process.wait(DEADLINE_S)
        rows = pa.ipc.open_stream(begin + answer.read(ANSWER_BYTES)).read_all()
    assert rows.num_rows == _ROWS  # never a part of it as if it were all


def stack_after_stack(here: Address, _: Target, in_hand: threading.Event) -> None:
    """The stacks of all threads, without a pause, until they are refused."""
    while True:
        ask(here, "backtrace", timeout_s=DEADLINE_S)
        in_hand.set()


@pytest.mark.anypython
@pytest.mark.fault("T2")
@pytest.mark.parametrize(("way", "code"), ENDS.items(), ids=list(ENDS))
def test_it_exits_in_any_way_while_it_is_asked(
    way: str, code: int, tmp_path: Path, fault: Reached
) -> None:
    """Exit code, output and moment are those without us; no client waits or has half an answer."""
    ended = []
    for probing_is in ("0", "all"):
        cwd = tmp_path / probing_is
        cwd.mkdir()
        obedient = Obedient(cwd, "ending", way, PROBING=probing_is)
        target = obedient.target
        try:
            askers = [] if probing_is == "0" else ask_everything(target)
            late_s = obedient.end()
        finally:
            target.reap()
        ended.append((target.process.returncode, target.output))
    fault.equals(f"{way}, asked: exit code", code, ended[1][0])
    fault.holds(f"{way}, asked: both streams", "as without us", "as without us",
                is_kept=ended[0] == ended[1])  # fmt: skip
    fault.at_most(f"{way}, asked: the end", LATE_S, late_s, "s")
    for name, asker in askers:
        asker.join(DEADLINE_S)
        told = asker.code or "waits"
        fault.holds(f"{way}: who asks for {name}", "is told", told, is_kept=told in _TOLD)


def ask_everything(target: Target) -> list[tuple[str, Asker]]:
    """Have an eval, rows and stacks in hand; returns who asks for each."""
    here = Address(path=target.folder.socket)
    asked = []
    for question in (unread_rows, sleeping_code, stack_after_stack):
        in_hand = threading.Event()
        asker = Asker(functools.partial(question, here, target, in_hand))
        assert in_hand.wait(DEADLINE_S), asker.code
        asked.append((question.__name__.replace("_", " "), asker))
    jobs = probing.connect(str(target.folder.path)).jobs
    wait_until(lambda: any(job.state == "running" for job in jobs().jobs), "the eval to run")
    return asked


def is_at_work(target: Target, asked: Callable[[Target], object]) -> bool:
    """Whether a question has arrived, by what it makes the process or its worker do."""
    if asked in (endless_eval, sleeping_eval):
        return any(job.state == "running" for job in probing.connect(target.pid).jobs().jobs)
    return any(cpu_s(pid) > 1.0 for pid in sql_workers(target.pid))


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used; none, once it has ended."""
    facts = process_facts(pid)
    return facts.cpu_s if facts is not None else 0.0


@pytest.mark.torch
@pytest.mark.fault("T5")
def test_a_parent_is_killed_whose_workers_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Reached
) -> None:
    """Workers hold nothing on which a client could wait: it is told, and the record is read."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    target = start_program("loading", "for_ever", home=tmp_path / "home", cwd=tmp_path)
    try:
        target.wait_for_output("ready")
        target.wait_for_step(1)
        process = probing.connect(target.pid)
        (before,) = process.query("SELECT max(step) AS step FROM python.steps").to_pylist()
        workers = children_of(target.pid)
        assert workers
        target.kill()
        asker = Asker(lambda: process.eval("1"))
        asker.join(DEADLINE_S)
        fault.equals("an eval", "process_ended", asker.code)
        (after,) = process.query("SELECT max(step) AS step FROM python.steps").to_pylist()
        kept = after["step"] >= before["step"]
        fault.holds("steps", f"{before['step']} or more", str(after["step"]), is_kept=kept)
    finally:
        target.reap()


@pytest.mark.torch
@pytest.mark.fault("T8")
def test_it_is_stopped_and_goes_on(
    fresh_training: Target, monkeypatch: pytest.MonkeyPatch, fault: Reached
) -> None:
    """While it is stopped who asks gets an error of its type; then it answers again."""
    target = fresh_training
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    stop(target.pid)
    asker = Asker(lambda: process.eval("1", timeout_s=2))
    asker.join(DEADLINE_S)
    os.kill(target.pid, signal.SIGCONT)
    fault.equals("an eval while it is stopped", "not_answering", asker.code)
    fault.equals("the next one", "2", process.eval("1 + 1").value)


@pytest.mark.torch
@pytest.mark.fault("T8")
def test_code_in_c_holds_the_lock_for_a_while(
    fresh_training: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Reached
) -> None:
    """While nothing can be answered who asks gets an error of its type; then it answers again."""
    target = fresh_training
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    door = tmp_path / "door"
    os.mkfifo(door)
    hold = (
        f"import ctypes, os; fd = os.open({str(door)!r}, os.O_RDWR);"
        " ctypes.PyDLL(None).read(fd, ctypes.create_string_buffer(1), 1)"
    )
    holder = Asker(lambda: process.eval(hold, now=True, timeout_s=DEADLINE_S))
    with door.open("r+b", buffering=0) as opened:  # as a FIFO, without waiting for the other end
        wait_until(lambda: asked_in_vain(process), "the lock to be held")
        opened.write(b"x")
        holder.join(DEADLINE_S)  # who opens it later finds what is in it
    fault.equals("who holds it", "answered", holder.code)
    fault.equals("the next eval", "2", process.eval("1 + 1").value)


def asked_in_vain(process: probing.Process) -> bool:
    """Whether an eval finds that nobody can answer."""
    asker = Asker(lambda: process.eval("1", timeout_s=1, now=True))
    asker.join(DEADLINE_S)
    return asker.code == "not_answering"
