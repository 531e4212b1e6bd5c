"""SQL at its worst, sent as a remote client sends it: one client's error and nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
import decimal
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from probing.client.base import Process
from probing.client.transports import ByAddress
from probing.errors import ProbingError, SqlError, SqlWorkerDied, SqlWorkerRests
from probing.linux import process
from probing.messages import common as wire
from probing.reach.address import Address
from probing.rundir.folders import ProcessFolder
from probing.server.sql_worker.worker import SqlWorker
from probing.settings import Settings
from probing.sql.answer import Answer
from probing.sql.engine import Engine
from tests.faults import Reached
from tests.harness.sql_attacks import ATTACKS, BOMBS, Bomb
from tests.harness.sql_fixtures import recorded_folder
from tests.harness.targets import DEADLINE_S, Target, wait_until
from tests.sql.sql_grammar import statement

pytestmark = pytest.mark.anypython

HONEST = "SELECT count(x) AS n FROM (VALUES (1), (2), (NULL)) t(x)"
ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 3"


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    """A run folder with rows, whose process has ended."""
    return recorded_folder(tmp_path)


def outcome(ask: Callable[[str], Answer], sql: str) -> str:
    """The code of the error that a statement ends with, or its rows."""
    try:
        return str(ask(sql).to_pylist())
    except ProbingError as error:
        print(f"{sql[:60]!r}: {error.message}")
        return error.code


@pytest.mark.slow
@pytest.mark.timeout(900)  # each attack may take its limit, on a machine that is busy
@pytest.mark.fault("Q1")
@pytest.mark.parametrize(
    "bombs", [BOMBS[::6], pytest.param(BOMBS, marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_no_attack_by_the_agent_does_harm(
    tmp_path: Path, program: Callable[..., Target], fault: Reached, bombs: Sequence[Bomb]
) -> None:
    """Over its socket an agent refuses or survives each attack, and the next client is right."""
    target = program("idle", PROBING="all", PROBING_QUERY_MEMORY_MIB="512")
    target.wait_for_output("ready")
    target.wait_for_agent()
    secret, new = tmp_path / "secret.csv", tmp_path / "new"
    secret.write_text("a,b\n1,secret\n")
    client = Process("idle", ByAddress(Address(path=target.folder.socket)), DEADLINE_S)

    def ask(sql: str) -> Answer:
        # The worker is far behind whatever else wants a processor, by then.
        return client.query(sql, timeout_s=DEADLINE_S)

    def ask_briefly(sql: str) -> Answer:
        return client.query(sql, timeout_s=2)

    def honest() -> str:
        ends: list[str] = []

        def is_answered() -> bool:
            ends.append(outcome(ask, HONEST))
            return ends[-1] != "sql_worker_rests"

        wait_until(is_answered, "the end of the worker's rest")
        return ends[-1]

    assert honest() == "[{'n': 2}]"
    before = [sorted(os.listdir(place)) for place in ("/", tmp_path, target.cwd)]
    for attack in ATTACKS:
        got = outcome(ask, attack.format(file=secret, new=new))
        case = " ".join(attack.split()) or "nothing"
        expected = "sql" if "INSERT" in attack else "sql_refused"
        fault.holds(f"remote: {case}", expected, got, is_kept=got.startswith(expected))
    assert honest() == "[{'n': 2}]", "after all attacks"
    for bomb in bombs:
        got = outcome(ask_briefly if "query_timed_out" in bomb.ends else ask, bomb.sql)
        fault.holds(f"remote: {bomb.name}", " or ".join(bomb.ends), got, is_kept=got in bomb.ends)
        assert honest() == "[{'n': 2}]", bomb.name
    after = [sorted(os.listdir(place)) for place in ("/", tmp_path, target.cwd)]
    fault.equals("remote: new files", "none", "none" if before == after else str(after))
    fault.equals("remote: the process's exit code", None, target.process.poll())
    assert target.output == "ready\n"


def exact(text: str) -> decimal.Decimal:
    """A decimal number of any length."""
    return decimal.Context(prec=50).create_decimal(text)


DIGITS = "12345678901234567890123456789012345678"
TYPES: dict[str, tuple[str, str, object]] = {
    "MAP": ("MAP {'a': 1, 'b': NULL}", "map<string, int32>", [("a", 1), ("b", None)]),
    "UNION": ("union_value(num := 2)", "sparse_union<num: int32=0>", 2),
    "DECIMAL(38)": (f"{DIGITS}::DECIMAL(38,0)", "decimal128(38, 0)", exact(DIGITS)),
    "INTERVAL": (
        "INTERVAL '1 month 2 days 3 seconds'",
        "month_day_nano_interval",
        pa.MonthDayNano([1, 2, 3_000_000_000]),
    ),
    "ENUM": ("'x'::ENUM('x', 'y')", "dictionary<values=string, indices=uint8, ordered=0>", "x"),
    "nested NULL": (
        "[NULL, {'a': [NULL, 1]}]",
        "list<l: struct<a: list<l: int32>>>",
        [None, {"a": [None, 1]}],
    ),
    "HUGEINT": (
        "-170141183460469231731687303715884105727::HUGEINT",
        "decimal128(38, 0)",
        exact("-170141183460469231731687303715884105727"),
    ),
    "an array": ("[1, NULL, 3]::SMALLINT[3]", "fixed_size_list<: int16>[3]", [1, None, 3]),
    "a BLOB": ("'\\x00\\xFF'::BLOB", "binary", b"\0\xff"),
}
"""An expression, its type in Arrow, and its value."""


@pytest.mark.fault("Q2")
def test_values_of_unusual_types_arrive_exactly(folder: ProcessFolder, fault: Reached) -> None:
    """Types and values survive the engine, the worker and the way back; else they are refused."""

    async def test(worker: SqlWorker) -> None:
        for name, (expression, kind, value) in TYPES.items():
            table = (await answer_of(worker, f"SELECT {expression} AS v")).to_arrow()
            got = f"{table.schema.field('v').type} {table['v'][0].as_py()!r}"
            fault.equals(name, f"{kind} {value!r}", got)
        answer = await answer_of(worker, "FROM range(100000000)", max_rows=1000)
        rows = f"{len(answer.to_pylist())}{', and it says so' if answer.truncated else ''}"
        fault.equals("10^8 rows", "1000, and it says so", rows)

    with_worker(folder, test)
    with (
        pytest.raises(SqlError) as caught,
        Engine([]).run("SELECT [18446744073709551616::UHUGEINT] AS v", timeout_s=9) as rows,
    ):
        rows.to_arrow()
    assert "the column v is of type UHUGEINT" in caught.value.message
    fault.equals("UHUGEINT, which Arrow has not", "sql", caught.value.code)


def with_worker(
    folder: ProcessFolder, test: Callable[[SqlWorker], Awaitable[None]], *, rest_s: float = 10.0
) -> None:
    """Run a test on an event loop with a worker that is closed at the end."""

    async def main() -> None:
        settings = Settings(query_timeout_s=DEADLINE_S)
        worker = SqlWorker(folder, lambda: settings, rest_s=rest_s)
        try:
            await test(worker)
        finally:
            worker.close()

    asyncio.run(main())


async def answer_of(
    worker: SqlWorker, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
) -> Answer:
    """The whole answer to a statement."""
    request = wire.QueryRequest(sql=sql, timeout_s=timeout_s, max_rows=max_rows)
    return Answer.from_ipc(b"".join([piece async for piece in worker.query(request)]))


async def answer_after_rest(worker: SqlWorker, sql: str) -> list[dict[str, Any]]:
    """The rows of a statement, as soon as the worker rests no more."""
    while True:
        with contextlib.suppress(SqlWorkerRests):
            rows: list[dict[str, Any]] = (await answer_of(worker, sql)).to_pylist()
            return rows
        await asyncio.sleep(0.05)


async def kill_one(worker: SqlWorker, *, when_ready: bool) -> str:
    """Have a statement run and kill its worker, at its start or amid the statement."""
    asking = asyncio.ensure_future(answer_of(worker, ENDLESS))
    while not asking.done():
        for used in worker._in_use:
            if used._is_ready or not when_ready:
                used.kill()
        await asyncio.sleep(0.001)
    try:
        return str(asking.result().to_pylist())
    except SqlWorkerDied as error:
        return error.message
    except SqlWorkerRests as error:
        return error.code


@pytest.mark.slow
@pytest.mark.fault("Q3")
def test_a_killed_worker_is_one_clients_error(folder: ProcessFolder, fault: Reached) -> None:
    """Killed at its start or in a statement it is replaced at once; killed again and again, not."""
    died = "the statement ended the SQL worker process (signal 9)."
    # One that is killed at its start may have come as far as the statement.
    ends = {True: (died,), False: (died, "the SQL worker process did not start (signal 9).")}

    async def test(worker: SqlWorker) -> None:
        times = []
        for when_ready in (False, True) * 2:
            case = "killed in a statement" if when_ready else "killed at its start"
            got = await kill_one(worker, when_ready=when_ready)
            fault.holds(case, " or ".join(ends[when_ready]), got, is_kept=got in ends[when_ready])
            fault.equals(
                f"{case}: the next is on its way", expected=True, got=worker._idle is not None
            )
            rows = (await answer_of(worker, "SELECT 1 AS n")).to_pylist()
            assert worker._idle is not None
            facts = process.facts(worker._idle.pid)
            assert facts is not None
            times.append(facts.cpu_s)
            fault.equals(f"{case}: the next client", [{"n": 1}], rows)
        # Of a processor: how long it waits for one is the machine's matter, not the worker's.
        fault.at_most("back again, the best of four: of a processor", 2.0, min(times), "s")
        more = [await kill_one(worker, when_ready=True) for _ in range(3)]
        fault.equals("killed a fifth time, and once more", [died, "sql_worker_rests"],
                     list(dict.fromkeys(more)))  # fmt: skip

    with_worker(folder, test, rest_s=10 * DEADLINE_S)  # however slow the machine, it rests


@pytest.mark.slow
@pytest.mark.fault("Q3")
def test_after_twenty_kills_the_next_client_is_answered(
    folder: ProcessFolder, fault: Reached
) -> None:
    """However often it was killed, it comes back once it has rested."""

    async def test(worker: SqlWorker) -> None:
        kills = rests = 0
        while kills < 20:
            rested = await kill_one(worker, when_ready=False) == "sql_worker_rests"
            rests, kills = rests + rested, kills + (not rested)
            if rested:
                await asyncio.sleep(0.1)
        rows = await answer_after_rest(worker, "SELECT 1 AS n")
        fault.equals("killed 20 times in a row: the next client", [{"n": 1}], rows)

    with_worker(folder, test, rest_s=1.0)


def fuzz(folder: ProcessFolder, fault: Reached, *, seed: int, seconds: float, least: int) -> None:
    """Send statements of the grammar for a while, at least so many, until some had an answer."""
    source, ends = random.Random(seed), dict[str, int]()

    async def test(worker: SqlWorker) -> None:
        end = time.monotonic() + seconds
        last = end + 4 * DEADLINE_S  # where a busy machine has no answer within the limit of one
        while (
            sum(ends.values()) < least
            or time.monotonic() < end
            or (ends.get("answered", 0) <= least // 20 and time.monotonic() < last)
        ):
            sql = statement(source)
            try:
                # Long enough for a worker to start anew, if the one before was too slow.
                await answer_of(worker, sql, timeout_s=5, max_rows=1000)
                code = "answered"
            except ProbingError as error:
                code = error.code
            if code == "sql_worker_died":
                print(f"ended the worker: {sql}")
            ends[code] = ends.get(code, 0) + 1
        rows = await answer_after_rest(worker, HONEST)
        fault.equals("the next client", [{"n": 2}], rows)

    with_worker(folder, test)
    allowed = {"answered", "sql", "sql_refused", "sql_too_large", "query_timed_out",
               "sql_worker_died", "sql_worker_rests"}  # fmt: skip
    told = ", ".join(f"{count} {code}" for code, count in sorted(ends.items()))
    fault.holds("all statements", "answers and errors of SQL", f"{told} (seed {seed})",
                is_kept=set(ends) <= allowed and ends.get("answered", 0) > least // 20)  # fmt: skip


@pytest.mark.slow
@pytest.mark.fault("Q4")
def test_random_statements_are_all_answered(folder: ProcessFolder, fault: Reached) -> None:
    """Whatever a grammar makes, it ends in an answer or an error of SQL."""
    fuzz(folder, fault, seed=7, seconds=0, least=20)


@pytest.mark.nightly
@pytest.mark.fault("Q4")
def test_random_statements_are_all_answered_for_long(folder: ProcessFolder, fault: Reached) -> None:
    """The same for ten minutes."""
    fuzz(folder, fault, seed=random.randrange(1 << 30), seconds=600, least=80)
