"""The record of collectives, in real jobs of several ranks with gloo."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import probing
from probing.agent.sources.collectives.groups import Group, Groups
from probing.errors import NotAnswering
from probing.ring.writer import Names, RingWriter
from probing.safety.guard import Guard
from probing.tables import PROCESS_GROUPS
from tests.harness.jobs import Job, StartJob, start_job
from tests.harness.recorded_runs import PHASES
from tests.harness.targets import Target, clean_env, program_path, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

RANKS = 4
MINE = "caller LIKE 'ranks.py:%'"
LATE_S = 0.3
"""How long rank 1 keeps the others waiting in each step."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job that has called for collectives of every kind; do not harm it."""
    job = start_job("ranks", "healthy", ranks=RANKS, cwd=tmp_path_factory.mktemp("healthy"))
    try:
        job.wait_for_output("done")
        yield job
    finally:
        job.reap()


def test_numbers_are_the_same_on_all_ranks(healthy: Job) -> None:
    """The same number in a group is the same operation everywhere, without a gap."""
    sql = (
        "SELECT seq, op, root FROM python.collectives WHERE process_group = '0'"
        " AND op NOT IN ('send', 'recv') ORDER BY seq"
    )
    first, *others = [healthy.ask(rank, sql) for rank in range(RANKS)]
    assert [row["seq"] for row in first] == list(range(1, len(first) + 1))
    assert len(first) > 20
    assert others == [first] * (RANKS - 1)


def test_some_are_measured_for_memory(healthy: Job) -> None:
    """Not of all, and of none that is under way, it is known by how much memory had grown."""
    sql = (
        "SELECT count(*) AS n, count(growth_bytes) AS measured,"
        " count(growth_bytes) FILTER (duration IS NULL) AS under_way FROM python.collectives"
    )
    (row,) = healthy.ask(0, sql)
    assert 0 < row["measured"] < row["n"]
    assert row["under_way"] == 0


EVERY_KIND = [
    ("all_reduce", "[4,2]", 32, "max", None),
    ("broadcast", "[4,2]", 32, None, 1),
    ("reduce", "[4,2]", 32, "sum", 2),
    ("all_gather", "[4,2]", 32, None, None),
    ("all_gather", "[4,2]", 32, None, None),
    ("reduce_scatter", "[16,2]", 128, "sum", None),
    ("reduce_scatter", "[4,2];[4,2];[4,2];[4,2]", 128, "sum", None),
    ("gather", "[4,2]", 32, None, 1),
    ("scatter", "[4,2]", 32, None, 1),
    ("all_to_all", "[16,2]", 128, None, None),
    ("barrier", None, 0, None, None),
]


def test_each_kind_is_told(healthy: Job) -> None:
    """Operation, sizes, reduction and root are those of the script; so is the line."""
    rows = healthy.ask(
        2,
        "FROM python.collectives WHERE process_group = '0' AND op NOT IN ('send', 'recv')"
        f" AND seq <= {len(EVERY_KIND)} ORDER BY seq",
    )
    names = ("op", "shapes", "bytes", "reduce_op", "root")
    assert [tuple(row[name] for name in names) for row in rows] == EVERY_KIND
    lines = (program_path("ranks")).read_text().splitlines()
    for row in rows:
        file, _, number = row["caller"].partition(":")
        assert file == "ranks.py"
        assert row["op"].split("_")[0] in lines[int(number) - 1]
        assert row["duration_ns"] >= row["wait_ns"] > 0
        assert row["failed"] is row["is_async"] is False


def test_collectives_inside_others_are_seen(healthy: Job) -> None:
    """Objects are gathered by two collectives of tensors, from the line of the script."""
    rows = healthy.ask(0, "FROM python.collectives WHERE op = 'all_gather' AND dtypes != 'float32'")
    assert [row["dtypes"] for row in rows] == ["int64", "uint8"]
    assert len({row["caller"] for row in rows}) == 1


def test_asynchronous_ones_are_completed(healthy: Job) -> None:
    """The row is complete once the work has been waited for."""
    (row,) = healthy.ask(
        0, f"FROM python.collectives WHERE is_async AND reduce_op = 'sum' AND bytes = 32 AND {MINE}"
    )
    assert row["op"] == "all_reduce"
    assert row["duration_ns"] >= row["wait_ns"] > 0


def test_groups_are_told(healthy: Job) -> None:
    """Each rank has rows of the groups that it is in, and of no other."""
    for rank in range(RANKS):
        rows = healthy.ask(rank, "FROM python.process_groups ORDER BY process_group")
        assert rows[0]["process_group"] == "0"
        assert (rows[0]["size"], rows[0]["group_rank"]) == (RANKS, rank)
        assert {row["backend"] for row in rows} == {"gloo"}
        assert [row["ranks"] for row in rows] == (["0,1,2,3"] + ["0,2"] * (rank % 2 == 0))
        assert rows[0]["timeout_s"] > 0.0
        of_evens = healthy.ask(
            rank, "SELECT seq, op, root FROM python.collectives WHERE group_size = 2"
        )
        expected = [{"seq": 1, "op": "broadcast", "root": 2}] if rank % 2 == 0 else []
        assert of_evens == expected


def test_messages_have_the_number_of_their_pair(healthy: Job) -> None:
    """The n-th message sent from a rank to another is the n-th received there from it."""
    sql = "SELECT peer, seq, bytes, is_async FROM python.collectives WHERE op = '{}' ORDER BY seq"
    for rank in range(RANKS):
        after = (rank + 1) % RANKS
        sent = healthy.ask(rank, sql.format("send"))
        received = healthy.ask(after, sql.format("recv"))
        number = len(sent)
        assert number == (5 if _knows_functional_messages(healthy) else 3)
        assert [row["peer"] for row in sent] == [after] * number
        assert [row["peer"] for row in received] == [rank] * number
        numbers = list(range(1, number + 1))
        assert [row["seq"] for row in sent] == [row["seq"] for row in received] == numbers
        assert [row["bytes"] for row in received] == [32, 32, 12, 36, 44][:number]
        assert [row["is_async"] for row in received] == [False, False, True, True, True][:number]
        assert all(row["is_async"] for row in sent)


def test_calls_of_the_reducer_are_seen(healthy: Job) -> None:
    """What DistributedDataParallel exchanges has a row in each of its steps, and is summed."""
    for rank in range(RANKS):
        rows = healthy.ask(
            rank,
            "SELECT step, count(*) AS n, min(caller) AS caller, list(DISTINCT reduce_op) AS by"
            " FROM python.collectives WHERE shapes = '[4680]' AND duration IS NOT NULL"
            " GROUP BY step ORDER BY step",
        )
        assert [(row["n"], row["by"]) for row in rows] == [(1, ["sum"])] * 4
        assert rows[0]["caller"].startswith("ranks.py:")


@pytest.mark.parametrize("first", [0, 4], ids=["reducer", "by hand"])
def test_waiting_for_other_ranks_is_a_phase(first: int, healthy: Job) -> None:
    """Who waits for a late rank before it steps spends the step on that, not on its own work."""
    sql = f"FROM python.steps WHERE step BETWEEN {first} AND {first + 3} ORDER BY step"
    steps = {rank: healthy.ask(rank, sql) for rank in range(RANKS)}
    for row in itertools.chain(*steps.values()):
        spent = sum(row[f"{name}_s"] or 0.0 for name in PHASES)
        assert spent == pytest.approx(row["duration"])
        assert row["backward_s"] > 0.0
    waited = [row["gradient_sync_s"] for row in steps[0]]
    assert max(waited) > LATE_S / 2
    assert max(waited) > min(row["gradient_sync_s"] for row in steps[1])


def test_compiled_collectives_stay_whole(healthy: Job) -> None:
    """A compiled function with a collective in it is one graph, and its result is right."""
    told = [json.loads(line) for line in healthy.output(0).splitlines() if line.startswith('{"')]
    (facts,) = [facts for facts in told if "graphs" in facts]
    assert facts == {"total": [2.0 * RANKS] * 3, "graphs": 1, "breaks": 0}
    (row,) = healthy.ask(
        0,
        f"FROM python.collectives WHERE shapes = '[3]' AND {MINE} AND is_async"
        " AND op = 'all_reduce'",
    )
    assert row["duration_ns"] >= row["wait_ns"] > 0


FUNCTIONAL = [
    ("all_reduce", "[8,3]", 96, "max", None),
    ("all_gather", "[8,3]", 96, None, None),
    ("reduce_scatter", "[8,3]", 96, "sum", None),
    ("all_to_all", "[8,3]", 96, None, None),
    ("broadcast", "[8,3]", 96, None, 1),
    ("all_reduce", "[8,3];[8,3]", 192, "min", None),
]


def test_functional_collectives_are_told(healthy: Job) -> None:
    """Each has one row, from the line that called for it, and has ended when it was waited for."""
    rows = healthy.ask(
        1, f"FROM python.collectives WHERE shapes LIKE '[8,3]%' AND {MINE} ORDER BY seq"
    )
    names = ("op", "shapes", "bytes", "reduce_op", "root")
    assert [tuple(row[name] for name in names) for row in rows] == FUNCTIONAL
    for row in rows:
        assert row["duration_ns"] >= row["wait_ns"] > 0
        assert row["is_async"] is True


def test_functional_messages_are_told(healthy: Job) -> None:
    """Each has one row with the other rank; it ends as it is waited for, in a batch at the end."""
    rows = healthy.ask(
        1,
        f"FROM python.collectives WHERE shapes IN ('[9]', '[11]') AND {MINE} ORDER BY start_ns",
    )
    if not _knows_functional_messages(healthy):
        assert rows == []
        return
    names = ("op", "shapes", "bytes", "peer")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("send", "[9]", 36, 2),
        ("recv", "[9]", 36, 0),
        ("send", "[11]", 44, 2),
        ("recv", "[11]", 44, 0),
    ]
    assert [row["seq"] - rows[0]["seq"] for row in rows if row["op"] == "send"] == [0, 1]
    assert all(row["duration_ns"] > 0 and row["is_async"] for row in rows)
    assert [row["wait_ns"] is not None for row in rows[:2]] == [True, True]


def _knows_functional_messages(job: Job) -> bool:
    """Whether this torch has them."""
    lines = job.output(0).splitlines()
    (told,) = [json.loads(line) for line in lines if "knows_messages" in line]
    return bool(told["knows_messages"])


def test_the_first_functional_one_is_seen(healthy: Job) -> None:
    """None is missed before it is known that there are such; those of each step have its number."""
    rows = healthy.ask(0, "FROM python.collectives WHERE shapes = '[4]' ORDER BY seq")
    assert [row["op"] for row in rows] == ["all_reduce"] * 4
    assert [row["step"] for row in rows] == [row["step"] for row in rows[:1]] + [
        rows[0]["step"] + turn for turn in (1, 2, 3)
    ]


def test_what_shards_is_seen(healthy: Job) -> None:
    """DTensor's exchanges and those of FSDP2 have one row each, from the line of the script."""
    rows = healthy.ask(
        3,
        "SELECT op, reduce_op, is_async FROM python.collectives WHERE seq >= (SELECT max(seq) FROM"
        f" python.collectives WHERE shapes = '[2,7]') AND {MINE} AND NOT failed ORDER BY seq",
    )
    assert [(row["op"], row["reduce_op"], row["is_async"]) for row in rows] == SHARDED


SHARDED = [
    ("all_gather", None, True),
    ("all_gather", None, False),
    ("reduce_scatter", "avg", False),
    ("all_reduce", "sum", True),
]


def test_nothing_is_missing(healthy: Job) -> None:
    """All that the backend has counted was recorded: `status` knows of none that was not."""
    known = "calls from C++, such as those of DistributedDataParallel, are recorded"

    def answered() -> str | None:
        done = _answer(healthy, "status")
        return done if done is not None and known in done else None

    assert "problem" not in wait_until(answered, "an answer, and not the record's rows alone")


def _answer(job: Job, command: str) -> str | None:
    done = job.run(str(job.pid(0)), command)
    return " ".join(done.stdout.split()) if done.returncode == 0 else None


def test_the_flight_recorder_sees_them(healthy: Job) -> None:
    """Torch's own record agrees with ours on those that C++ calls for."""
    sql = (
        "SELECT op, shapes, backend, is_over FROM python.flight_recorder"
        " WHERE op = 'all_reduce' AND shapes = '[4]' ORDER BY record_id"
    )
    rows = wait_until(lambda: _ask_live(healthy, sql), "an answer")
    assert rows == [{"op": "all_reduce", "shapes": "[4]", "backend": "gloo", "is_over": True}] * 4
    same = wait_until(
        lambda: _ask_live(
            healthy,
            "SELECT count(*) AS n FROM python.flight_recorder WHERE op = 'all_reduce'"
            " AND shapes = '[4680]'",
        ),
        "an answer",
    )
    assert same == [{"n": 4}]


def _ask_live(job: Job, sql: str) -> list[dict[str, Any]] | None:
    try:
        return job.ask(0, sql)
    except NotAnswering:
        return None


def test_a_refused_one_has_failed(healthy: Job) -> None:
    """Its row has the error that torch has raised."""
    (row,) = healthy.ask(1, "FROM python.collectives WHERE failed")
    assert (row["op"], row["reduce_op"]) == ("all_reduce", "band")
    told = [json.loads(line) for line in healthy.output(1).splitlines() if "refused" in line]
    assert row["error"].partition(": ")[2][:40] == told[0]["refused"][:40]


def test_the_row_of_a_rank_that_waits_is_open(job: StartJob) -> None:
    """Ranks that wait for a missing one have an open row; it is there when all are dead."""
    started = job("ranks", "missing", ranks=3)
    started.wait_for_rank(2, "done")
    for rank in (0, 1):
        started.wait_for_rank(rank, '"turn": 1')  # it is out of the second, which all have called
    sql = "SELECT seq, op, caller, wait_ns FROM python.collectives WHERE duration IS NULL"
    for rank in (0, 1):
        rows = wait_until(lambda rank=rank: started.ask(rank, sql), "an open row")  # type: ignore[misc]
        assert [(row["seq"], row["op"], row["wait_ns"]) for row in rows] == [
            (3, "all_reduce", None)
        ]
    assert started.ask(2, sql) == []
    started.reap()
    assert [row["seq"] for row in started.ask(0, sql)] == [3]
    assert [row["seq"] for row in started.ask(2, "FROM python.collectives")] == [1, 2]


def test_late_agents_count_alike(job: StartJob) -> None:
    """Attached to running ranks one after the other, they give one number to one collective."""
    started = job("ranks", "without_end", ranks=2, PROBING="0")
    started.wait_for_output("ready")
    for pid in started.started_ranks():
        done = started.run("attach", str(pid), timeout_s=120)
        assert done.returncode == 0, done.stderr

    def met() -> list[dict[str, Any]]:
        """Those that both have on record: an all_reduce ends for nobody before all have come."""
        sql = (
            "SELECT seq, max(start_ns) AS came_ns, min(start_ns + duration_ns) AS left_ns"
            " FROM python.collectives WHERE op = 'all_reduce' AND duration_ns IS NOT NULL"
            " GROUP BY seq HAVING count(DISTINCT rank) = 2"
        )
        done = started.run("-t", "all", "query", sql, "--format", "json", timeout_s=120)
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    both = wait_until(lambda: rows if len(rows := met()) > 9 else None, "ten that both have")
    assert [row for row in both if row["came_ns"] > row["left_ns"]] == []


def test_what_is_begun_while_the_agent_comes_is_counted() -> None:
    """Between the meeting of a group and its first recorded call the program goes on."""
    begun = SimpleNamespace(number=5)
    torch_group = SimpleNamespace(_get_sequence_number_for_group=lambda: begun.number)
    group = Group(cast("Any", lambda: torch_group), 0, [0, 1])
    begun.number = 7
    group.count_from_here()
    assert (group.count, group.counted) == (7, 7)
    begun.number = 9
    group.count_from_here()
    assert group.count == 7
    assert not group.is_whole


def test_what_nobody_has_recorded_is_counted_anew(tmp_path: Path) -> None:
    """A group that was met once more has the backend's number, a row, and its messages' counts."""
    importlib.import_module("torch.distributed.distributed_c10d")  # as whoever has a group has done
    begun = [0]

    class Fake:
        """A process group of two ranks."""

        def rank(self) -> int:
            return 0

        def size(self) -> int:
            return 2

        def _get_sequence_number_for_group(self) -> int:
            return begun[0]

    known = cast("Any", Fake())
    ring = RingWriter(tmp_path / "ring", PROCESS_GROUPS, 16)
    groups = Groups(ring, Names(tmp_path / "names"), Guard("collectives", lambda: None))
    first = groups.of(known)
    first.count_from_here()
    first.sent[1] = 3
    assert first.is_whole
    begun[0] = 40
    groups.count_anew()
    second = groups.of(known)
    second.count_from_here()
    assert (second.count, second.sent, second.is_whole) == (40, {1: 3}, False)
    ring.close()


@pytest.mark.parametrize("way", ["late", "early"])
def test_nothing_is_left(way: str, program: Callable[..., Target]) -> None:
    """Classes, modules and torch's dispatcher are as before, whenever the agent came."""
    target = program("leaving_collectives", way, PROBING="0")
    assert target.process.wait(120) == 0, target.output
    told: dict[str, Any] = json.loads(target.output.splitlines()[-1])
    assert told["faults"] == 0
    assert told["had"] == [True] * 5
    assert told["left"] == [False] * 5
    assert set(told["same"].values()) == {True}, told
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROBING_HOME", str(target.home))
        record = probing.connect(str(target.folder.path))
        rows = record.query("SELECT op, caller FROM python.collectives ORDER BY seq").to_pylist()
    assert rows[-1]["op"] == "all_reduce"
    assert rows[-1]["caller"].startswith("leaving_collectives.py:")
    assert len(rows) >= 2


def test_a_group_that_is_forgotten_in_vain_says_nothing(tmp_path: Path) -> None:
    """Where taking a group out that is gone fails, the program prints nothing; it is counted."""
    done = subprocess.run(
        [sys.executable, str(program_path("forgetting_group"))],
        env=clean_env(tmp_path / "home", PROBING="0"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["is_gone"] is True
    assert told["faults"] == 1
    assert "KeyError: 'injected'" in told["note"]
