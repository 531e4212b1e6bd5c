"""Remote SQL runs in a helper process: whatever it does there, the asking process lives on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from probing.errors import Busy, QueryTimedOut, RemoteError, SqlWorkerDied
from probing.linux import process
from probing.messages import common as wire
from probing.own_files import is_our_command
from probing.rundir.folders import ProcessFolder
from probing.server.sql_worker import sql_worker_main, worker as worker_module, worker_process
from probing.server.sql_worker.courtesy import FAR, NEAR
from probing.server.sql_worker.worker import SqlWorker
from probing.server.sql_worker.worker_process import WorkerProcess
from probing.settings import Settings
from probing.sql import frames as sql_frames, threads
from probing.sql.answer import Answer
from probing.sql.frames import WorkerRequest
from tests.faults import Reached
from tests.harness.sql_attacks import UNSTOPPABLE
from tests.harness.sql_fixtures import recorded_folder
from tests.harness.targets import DEADLINE_S, ROOT, wait_until

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 3"
_BESIDE_S = 10.0
"""Of a processor: what a worker may take beside its first statement, and for its start."""
DEADLY = "SELECT ((repeat('[', 20000) || repeat(']', 20000))::json::variant)"

Test = Callable[[SqlWorker], Awaitable[None]]


def with_worker(folder: ProcessFolder, test: Test, **settings: float) -> None:
    """Run a test on an event loop with a worker that is closed at the end, whatever happens."""

    async def main() -> None:
        values = Settings(**{"query_timeout_s": DEADLINE_S, **settings})  # type: ignore[arg-type]
        worker = SqlWorker(folder, lambda: values)
        try:
            await asyncio.wait_for(test(worker), 2 * DEADLINE_S)
        finally:
            worker.close()
        assert not worker._killed
        assert worker._idle is None

    asyncio.run(main())


async def ask(
    worker: SqlWorker, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
) -> Answer:
    """The whole answer to a statement."""
    request = wire.QueryRequest(sql=sql, timeout_s=timeout_s, max_rows=max_rows)
    return Answer.from_ipc(b"".join([piece async for piece in worker.query(request)]))


def idle_pid(worker: SqlWorker) -> int:
    """The process that waits for the next statement."""
    assert worker._idle is not None
    return worker._idle.pid


def peak_kib(pid: int) -> int:
    """The most memory that a process has held, which the kernel would kill before any other."""
    folder = Path(f"/proc/{pid}")
    assert (folder / "oom_score_adj").read_text() == "1000\n"
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", (folder / "status").read_text())
    return int(peak)


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    """A run folder with rows, whose process has ended."""
    return recorded_folder(tmp_path)


def test_rows_and_types_arrive(folder: ProcessFolder) -> None:
    """A remote answer is the local one; the process is kept for the next statement."""

    async def test(worker: SqlWorker) -> None:
        sql = "SELECT module, count(*) AS n FROM python.torch_trace GROUP BY 1 ORDER BY 1"
        rows = (await ask(worker, sql)).to_pylist()
        assert rows == [
            {"module": "blocks.0.attn", "n": 34},
            {"module": "fc1", "n": 34},
            {"module": "fc2", "n": 34},
        ]
        pid = idle_pid(worker)
        empty = await ask(worker, "SELECT step, duration FROM python.steps WHERE false")
        assert empty.schema.types == [pa.int64(), pa.float64()]
        assert idle_pid(worker) == pid

    with_worker(folder, test)


def test_errors_arrive_as_they_were_made(folder: ProcessFolder) -> None:
    """Code, place and help of an error survive the way; the worker does, too."""

    async def test(worker: SqlWorker) -> None:
        with pytest.raises(RemoteError, match=r"Did you mean python\.steps") as caught:
            await ask(worker, "SELECT 1 FROM python.stps")
        assert (caught.value.code, caught.value.exit_code) == ("sql", 1)
        assert caught.value.detail["position"] == 14
        pid = idle_pid(worker)
        with pytest.raises(RemoteError, match="DROP statement") as refused:
            await ask(worker, "DROP VIEW python.steps")
        assert (refused.value.code, refused.value.status) == ("sql_refused", 403)
        # The process has ended: what its threads were inside of stands for their stacks.
        last = await ask(worker, "SELECT DISTINCT source FROM python.backtrace")
        assert last.to_pylist() == [{"source": "open rows"}]
        assert idle_pid(worker) == pid

    with_worker(folder, test)


@pytest.mark.parametrize(
    ("max_rows", "settings", "rows"),
    [(3, {}, 3), (None, {"query_max_rows": 7}, 7), (9, {"query_max_rows": 7}, 7)],
)
def test_the_smaller_limit_cuts_the_answer(
    folder: ProcessFolder, max_rows: int | None, settings: dict[str, float], rows: int
) -> None:
    """Neither the client's nor the agent's limit on rows is passed, and the answer says so."""

    async def test(worker: SqlWorker) -> None:
        answer = await ask(worker, "FROM range(100)", max_rows=max_rows)
        assert answer.to_arrow().num_rows == rows
        assert f"after {rows} rows" in (answer.truncated or "")

    with_worker(folder, test, **settings)


def test_a_large_answer_arrives_whole(folder: ProcessFolder) -> None:
    """Answers much larger than a pipe come piece by piece, to the last row."""

    async def test(worker: SqlWorker) -> None:
        answer = await ask(worker, "SELECT range, 'x' || range AS s FROM range(500000)")
        table = answer.to_arrow()
        assert table.num_rows == 500_000
        assert table["s"][-1].as_py() == "x499999"

    with_worker(folder, test)


def test_a_statement_that_kills_the_worker_is_one_clients_error(folder: ProcessFolder) -> None:
    """A segmentation fault of the engine is reported, and the next statement works."""

    async def test(worker: SqlWorker) -> None:
        with pytest.raises(SqlWorkerDied, match="signal 11"):
            await ask(worker, DEADLY)
        assert (await ask(worker, "SELECT 1 AS n")).to_pylist() == [{"n": 1}]

    with_worker(folder, test, query_memory_mib=2048)  # with less it is refused


def test_a_worker_killed_between_statements_is_replaced(folder: ProcessFolder) -> None:
    """Nobody sees an error when the idle process disappears."""

    async def test(worker: SqlWorker) -> None:
        await ask(worker, "SELECT 1")
        pid = idle_pid(worker)
        os.kill(pid, 9)
        wait_until(lambda: process.start_time(pid) is None, "its end")
        await ask(worker, "SELECT 1")
        assert idle_pid(worker) != pid

    with_worker(folder, test)


def test_how_a_worker_ended_is_told_however_late(
    folder: ProcessFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its parent, which a busy machine may hold up: it has not closed its pipe, but died."""

    async def test(worker: SqlWorker) -> None:
        asking = asyncio.ensure_future(ask(worker, ENDLESS))
        await until(lambda: any(used._is_ready for used in worker._in_use))
        (in_use,) = worker._in_use
        os.kill(in_use._apart._parent, signal.SIGSTOP)
        try:
            os.kill(in_use.pid, signal.SIGSEGV)
            await until(lambda: not in_use.is_alive())
            # Not before: its pipe is closed as it dies, and the rest of that may take it long.
            monkeypatch.setattr(worker_process, "_END_S", 0.0)
            await asyncio.wait({asking}, timeout=1.0)
            assert not asking.done()
        finally:
            os.kill(in_use._apart._parent, signal.SIGCONT)
        with pytest.raises(SqlWorkerDied, match="signal 11"):
            await asking
        assert in_use.has_failed()

    with_worker(folder, test)


def test_a_worker_that_is_still_starting_is_kept(
    folder: ProcessFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cannot wait for it is told that it was starting; who asks next has the same one."""
    made: list[WorkerProcess] = []

    def held_up(*args: Any) -> WorkerProcess:
        made.append(WorkerProcess(*args))
        wait_until(lambda: made[-1].is_gone() or made[-1].pid, "its number")
        os.kill(made[-1].pid, signal.SIGSTOP)
        wait_until(lambda: process.state(made[-1].pid) == "T", "its stop")
        if select.select([made[-1]._answers], [], [], 0)[0]:  # it was ready before
            late = made.pop()
            late.kill()
            late.wait()
            late.release()
            return held_up(*args)
        return made[-1]

    monkeypatch.setattr(worker_module, "WorkerProcess", held_up)

    async def test(worker: SqlWorker) -> None:
        for _ in range(3):
            with pytest.raises(QueryTimedOut, match="SQL worker process was still starting") as one:
                await ask(worker, "SELECT 1", timeout_s=0.1)
            assert "ask again" in one.value.help
        gone = asyncio.ensure_future(ask(worker, "SELECT 1"))
        await asyncio.sleep(0.05)
        gone.cancel()  # as by a client that goes away
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        (only,) = made
        os.kill(only.pid, signal.SIGCONT)
        assert (await ask(worker, "SELECT 1 AS n")).to_pylist() == [{"n": 1}]
        assert idle_pid(worker) == only.pid

    with_worker(folder, test)


def test_a_worker_that_never_comes_to_start_is_given_up(
    folder: ProcessFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has had more than long enough makes way for another."""
    monkeypatch.setattr("probing.server.sql_worker.worker_process._START_S", 0.0)

    async def test(worker: SqlWorker) -> None:
        with pytest.raises(QueryTimedOut, match="was ended"):
            await ask(worker, "SELECT 1", timeout_s=0.01)
        assert (await ask(worker, "SELECT 1 AS n")).to_pylist() == [{"n": 1}]

    with_worker(folder, test)


@pytest.mark.parametrize("sql", [ENDLESS, UNSTOPPABLE])
def test_a_statement_is_ended_at_its_deadline(folder: ProcessFolder, sql: str) -> None:
    """What can be interrupted is, and its worker kept; what cannot is killed; the next works."""

    async def test(worker: SqlWorker) -> None:
        await ask(worker, "SELECT 1")
        pid = idle_pid(worker)
        for limit_s in (0.7, 3, 9, 27):  # on a busy machine it may end before it has begun
            started = time.monotonic()
            with pytest.raises(QueryTimedOut, match=f"limit of {limit_s} s"):
                await ask(worker, sql, timeout_s=limit_s)
            assert time.monotonic() - started < limit_s + DEADLINE_S
            assert (await ask(worker, "SELECT 1 AS n")).to_pylist() == [{"n": 1}]
            before, pid = pid, idle_pid(worker)
            if (pid == before) is (sql == ENDLESS):
                return
        raise AssertionError("another worker" if sql == ENDLESS else "the same worker")

    with_worker(folder, test)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT format('{:>2000000000}', 5)",
        "SELECT list(range) FROM range(100000000)",
    ],
)
def test_a_memory_bomb_is_refused(folder: ProcessFolder, sql: str) -> None:
    """Neither the engine's limit nor, where that is ignored, the process's can be passed."""

    async def test(worker: SqlWorker) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(worker, sql)
        assert caught.value.code == "sql_too_large"
        assert (await ask(worker, "SELECT 1 AS n")).to_pylist() == [{"n": 1}]

    with_worker(folder, test, query_memory_mib=64)


def test_what_earlier_statements_had_is_no_reason_to_refuse_one(folder: ProcessFolder) -> None:
    """A worker's allocator keeps it; what a new worker has room for is answered by a new one."""

    async def test(worker: SqlWorker) -> None:
        pids = set()
        for size in (10_000_000, 50_000_000, 100_000_000, 150_000_000):
            answer = await ask(
                worker, f"SELECT strlen(repeat(repeat('x', 1000), {size // 1000})) AS n"
            )
            assert answer.to_pylist() == [{"n": size}]
            pids.add(idle_pid(worker))
        assert len(pids) == 2, pids

    with_worker(folder, test, query_memory_mib=512)


def test_what_is_left_of_earlier_statements_ends_no_other(
    folder: ProcessFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies of its second statement may do so for the first: a new one answers."""
    real = WorkerProcess.ask

    async def dying(worker: WorkerProcess, request: WorkerRequest) -> None:
        if worker.asked == 1:
            os.kill(worker.pid, signal.SIGSEGV)
        await real(worker, request)

    async def test(worker: SqlWorker) -> None:
        monkeypatch.setattr(WorkerProcess, "ask", dying)
        await ask(worker, "SELECT 1 AS n")
        before = idle_pid(worker)
        assert (await ask(worker, "SELECT 2 AS n")).to_pylist() == [{"n": 2}]
        assert idle_pid(worker) != before

    with_worker(folder, test)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat('x', 1800000000))",
        "SELECT format('{:>2000000000}', 5)",
        "SELECT list_sum(range(200000000))",
        "SELECT list(range) FROM range(100000000)",
        "FROM range(100000000) ORDER BY hash(range)",
        "SELECT length(repeat('x', 130000000) || repeat('y', 130000000))",
    ],
)
def test_what_is_set_is_what_a_worker_holds(folder: ProcessFolder, sql: str) -> None:
    """A statement that tries to take 2 GB has 512 MiB, and dies before the training does."""

    async def test() -> None:
        worker = WorkerProcess(folder, 512)
        question = WorkerRequest(
            sql=sql, timeout_s=DEADLINE_S, max_rows=1, max_bytes=1 << 20, memory_mib=512,
            max_sql_bytes=1 << 16,
        )  # fmt: skip
        try:
            await worker.wait_ready()
            with contextlib.suppress(RemoteError):
                await worker.ask(question)
            assert peak_kib(worker.pid) < 512 << 10
        finally:
            worker.kill()
            worker.release()
            worker.wait()

    asyncio.run(test())


def test_an_idle_worker_goes(folder: ProcessFolder) -> None:
    """A process that nobody asks is ended and reaped; the next statement starts another."""

    async def test(worker: SqlWorker) -> None:
        await ask(worker, "SELECT 1")
        pid = idle_pid(worker)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        await ask(worker, "SELECT 1")
        assert idle_pid(worker) != pid

    with_worker(folder, test, worker_idle_s=0.1)


def test_a_client_that_goes_away_takes_its_statement_with_it(folder: ProcessFolder) -> None:
    """Cancelling the asking task ends the process at once; the next statement works."""

    async def test(worker: SqlWorker) -> None:
        await ask(worker, "SELECT 1")
        pid = idle_pid(worker)
        task = asyncio.ensure_future(ask(worker, ENDLESS))
        await until(lambda: any(used.pid == pid for used in worker._in_use))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert (await ask(worker, "SELECT 1 AS n")).to_pylist() == [{"n": 1}]

    with_worker(folder, test)


def test_a_client_that_stops_reading_holds_nobody_up(folder: ProcessFolder) -> None:
    """While one answer waits for its reader, another statement runs; leaving ends the process."""

    async def test(worker: SqlWorker) -> None:
        sql = "SELECT range, 'x' || range FROM range(500000)"
        slow = worker.query(wire.QueryRequest(sql=sql))
        first = await slow.__anext__()
        assert first
        (in_use,) = worker._in_use
        assert (await ask(worker, "SELECT 1 AS n")).to_pylist() == [{"n": 1}]
        await slow.aclose()
        await until(lambda: not Path(f"/proc/{in_use.pid}").exists())

    with_worker(folder, test)


def test_statements_wait_for_each_other(folder: ProcessFolder) -> None:
    """One statement runs at a time; one that cannot get its turn in time says why."""

    async def test(worker: SqlWorker) -> None:
        long = asyncio.ensure_future(ask(worker, ENDLESS))
        await until(worker._turn.locked)
        with pytest.raises(Busy):
            await ask(worker, "SELECT 1", timeout_s=0.2)
        long.cancel()
        answers = await asyncio.gather(*(ask(worker, f"SELECT {n} AS n") for n in range(5)))
        assert [answer.to_pylist() for answer in answers] == [[{"n": n}] for n in range(5)]

    with_worker(folder, test)


def test_a_change_of_the_memory_setting_takes_effect(folder: ProcessFolder) -> None:
    """A worker that was limited by another value is replaced."""

    async def main() -> None:
        values = [Settings(query_timeout_s=DEADLINE_S, query_memory_mib=512)]
        worker = SqlWorker(folder, lambda: values[0])
        try:
            await ask(worker, "SELECT 1")
            pid = idle_pid(worker)
            values[0] = Settings(query_timeout_s=DEADLINE_S, query_memory_mib=100)
            await ask(worker, "SELECT 1")
            assert idle_pid(worker) != pid
        finally:
            worker.close()

    asyncio.run(main())


def test_close_ends_what_runs(folder: ProcessFolder) -> None:
    """After `close` no process is left, and the statement in hand ends with an error."""

    async def test(worker: SqlWorker) -> None:
        task = asyncio.ensure_future(ask(worker, ENDLESS))
        await until(lambda: any(used._is_ready for used in worker._in_use))
        (in_use,) = worker._in_use
        worker.close()
        assert not in_use.is_alive()
        with pytest.raises(SqlWorkerDied, match="signal 9"):
            await task

    with_worker(folder, test)


def test_the_worker_is_limited_and_bare(
    folder: ProcessFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It inherits no descriptor, blocked signal or variable of an agent, is nice and known."""
    monkeypatch.setenv("PROBING", "1")
    monkeypatch.setenv("SECRET", "x")
    inherited = tmp_path / "inherited"
    handed_down = os.open(inherited, os.O_RDONLY | os.O_CREAT)
    os.set_inheritable(handed_down, True)

    async def test(worker: SqlWorker) -> None:
        await ask(worker, "SELECT 1")
        proc = Path(f"/proc/{idle_pid(worker)}")
        names = {v.partition(b"=")[0] for v in (proc / "environ").read_bytes().split(b"\0")}
        assert not names & {b"PROBING", b"SECRET", b"PYTHONPATH"}
        for link in (proc / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                assert os.readlink(link) != str(inherited)
        assert is_our_command(process.command(idle_pid(worker)))
        assert int(process.status(idle_pid(worker))["SigBlk"], 16) == 0
        limits = (proc / "limits").read_text()
        assert f"{(512 << 20) + (2 << 30)}" in limits
        assert int((proc / "stat").read_text().rpartition(")")[2].split()[16]) >= NEAR

    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # as the agent does
    try:
        with_worker(folder, test)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(handed_down)


def test_the_worker_ends_with_its_parent(folder: ProcessFolder) -> None:
    """A killed process leaves no worker, not one in a statement, nor where a fork has its pipes."""
    program = f"""
import asyncio, os, signal, sys
from pathlib import Path
from probing.messages import common as wire
from probing.server.sql_worker.worker import SqlWorker
from probing.rundir.folders import folder_at
from probing.settings import Settings

async def main():
    settings = Settings(query_timeout_s={DEADLINE_S})
    worker = SqlWorker(folder_at(Path({str(folder.path)!r})), lambda: settings)
    async for _ in worker.query(wire.QueryRequest(sql="SELECT 1")):
        pass
    if not os.fork():
        signal.pause()
    print(worker._idle.pid, flush=True)
    async for _ in worker.query(wire.QueryRequest(sql={ENDLESS!r})):
        pass

asyncio.run(main())
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    group = parent.pid
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        wait_until(lambda: process.start_time(pid) is None, "the worker's end")
    finally:
        os.killpg(group, signal.SIGKILL)
        parent.communicate()


def test_asking_loads_no_engine_into_the_process(folder: ProcessFolder) -> None:
    """The process that asks imports neither DuckDB nor pyarrow nor numpy."""
    program = f"""
import asyncio, sys
from pathlib import Path
from probing.messages import common as wire
from probing.server.sql_worker.worker import SqlWorker
from probing.rundir.folders import folder_at
from probing.settings import Settings

async def main():
    settings = Settings(query_timeout_s={DEADLINE_S})
    worker = SqlWorker(folder_at(Path({str(folder.path)!r})), lambda: settings)
    pieces = [p async for p in worker.query(wire.QueryRequest(sql="FROM python.steps"))]
    worker.close()
    return sum(map(len, pieces))

size = asyncio.run(main())
print(size > 0, sorted({{"duckdb", "pyarrow", "numpy"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True []\n", "")


def test_a_worker_that_cannot_work_says_why(tmp_path: Path) -> None:
    """A folder that is none, and a program that cannot be started, give a sentence each."""

    async def test(worker: SqlWorker) -> None:
        with pytest.raises(RemoteError, match="not the run folder"):
            await ask(worker, "SELECT 1")

    with_worker(ProcessFolder(tmp_path, 1, 1), test)


def test_a_python_that_is_not_there_is_reported(
    folder: ProcessFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the interpreter cannot be started again, the client is told."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(SqlWorkerDied, match="SQL worker process did not start"):
        WorkerProcess(folder, 64)


def test_frames_are_what_they_say() -> None:
    """A frame is a little-endian length and the bytes."""
    assert sql_frames.LENGTH.pack(3) + b"abc" == b"\x03\0\0\0abc"


async def until(fact: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    end = time.monotonic() + DEADLINE_S
    while not fact():
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.fault("Q2")
def test_a_statement_that_nobody_ends_is_ended(folder: ProcessFolder, fault: Reached) -> None:
    """Processor time and memory of the worker have limits of the kernel's, should we not act."""

    async def test() -> None:
        worker = WorkerProcess(folder, 512)
        try:
            await worker.wait_ready()
            question = WorkerRequest(
                sql=UNSTOPPABLE,
                timeout_s=DEADLINE_S,
                max_rows=1,
                max_bytes=1,
                memory_mib=512,
                max_sql_bytes=1 << 16,
            )
            before = resource.prlimit(worker.pid, resource.RLIMIT_CPU)
            asking = asyncio.ensure_future(worker.ask(question))
            await until(lambda: resource.prlimit(worker.pid, resource.RLIMIT_CPU) != before)
            soft, hard = resource.prlimit(worker.pid, resource.RLIMIT_CPU)
            most_s = question.timeout_s * threads.available()
            assert most_s < soft <= most_s + _BESIDE_S
            # A busy machine may not give it so much within an hour.
            resource.prlimit(worker.pid, resource.RLIMIT_CPU, (1, hard))
            with pytest.raises(SqlWorkerDied):
                await asyncio.wait_for(asking, DEADLINE_S)
            await until(worker.is_gone)
            told = (-signal.SIGXCPU, worker._apart.code)
            fault.equals("a statement that goes on: how its worker ends", *told)
        finally:
            worker.kill()
            worker.release()
            worker.wait()

    asyncio.run(test())


_LONG = """
import json, os, threading
from probing.server.sql_worker.courtesy import FAR, Courtesy

seen = []

def niceness():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

def long():
    seen.append(niceness())
    while niceness() < FAR:
        pass
    seen.append(niceness())

def fail():
    seen.append(1 // 0)

courtesy = Courtesy(prompt_s=0.05)
courtesy.run(long)
courtesy.run(lambda: seen.append(niceness()))
try:
    courtesy.run(fail)
except ZeroDivisionError:
    print(json.dumps([niceness(), *seen]))
"""


def test_what_is_long_stands_far_behind_and_what_follows_does_not() -> None:
    """A statement is near the training until its time is used up; the next has no less priority.

    In a process of its own: each thread of it stands far behind then, and none comes back.
    """
    done = subprocess.run(
        [sys.executable, "-c", _LONG], cwd=ROOT, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own, began, far, follows = json.loads(done.stdout)
    assert own == began == os.getpriority(os.PRIO_PROCESS, 0)
    assert far == max(own, FAR)
    assert follows in (own, far)  # its time has not come back, or has by a little


def test_each_thread_of_a_statement_has_its_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that nobody writes is read by several threads, which use up their limit together."""
    limits: list[float] = []
    monkeypatch.setattr(sql_worker_main, "limit_processor_time", limits.append)
    monkeypatch.setattr(threads, "available", lambda: 3)
    request = WorkerRequest(
        sql="SELECT 1 AS one", timeout_s=20.0, max_rows=9, max_bytes=1 << 20, memory_mib=512,
        max_sql_bytes=1000,
    )  # fmt: skip
    folder = recorded_folder(tmp_path)
    _, batches = sql_worker_main._run(folder, request)
    assert [batch.to_pylist() for batch in batches] == [[{"one": 1}]]
    assert folder.has_ended()
    assert limits == [60.0]
