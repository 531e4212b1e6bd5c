"""Ranks that do not answer, or not rightly, are told, and the rows of the others are the answer."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

import duckdb
import pytest

from probing.cluster.job.members import Member, find_members
from probing.cluster.job.outcomes import Coverage
from probing.cluster.union.errors import UnionTooLarge
from probing.cluster.union.query import Union
from probing.errors import ProbingError
from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import read_node
from tests.harness.ranks import Ranks, assert_same, running_ranks
from tests.harness.targets import ROOT, Target, program_path, stop, wait_until

pytestmark = [pytest.mark.anypython, pytest.mark.slow]

COUNT = "SELECT rank, count(*) AS n FROM python.steps GROUP BY rank ORDER BY rank"
FAULTS = {2: "late", 3: "broken", 4: "cut", 5: "old", 6: "wrong"}
STEPS_EACH = 20
PATIENCE_S = 120
"""For what must be there however busy the machine is."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of eight fake ranks, of which five have a fault."""
    folder = tmp_path_factory.mktemp("fake")
    words = [f"{rank}={fault}" for rank, fault in FAULTS.items()]
    argv = [sys.executable, str(program_path("fake_ranks")), "8", *words]
    target = Target(argv, folder / "home", folder, PYTHONPATH=str(ROOT))
    target.wait_for_output("ready")
    yield f"127.0.0.1:{target.output.split()[1]}"
    target.reap()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Four ranks: one holds the interpreter lock, one is stopped, one is killed."""
    then = ("hold", "wait", "wait", "wait")
    with running_ranks(tmp_path_factory.mktemp("ranks"), 4, rows=80, then=then) as found:
        stop(found.targets[1].pid)
        found.targets[2].kill()
        yield found


def test_hung_stopped_and_dead_ranks_answer_from_their_rings(ranks: Ranks) -> None:
    """What ranks recorded is there while one holds the lock, one is stopped and one is dead."""
    answer = Union(ranks.members()).query(COUNT, timeout_s=PATIENCE_S)
    assert answer.to_pylist() == [{"rank": rank, "n": 10} for rank in range(4)]
    words = Coverage.of(answer.outcomes).words()
    assert words == "asked 4 ranks: all answered (rank 2 from its record)"


def test_live_tables_come_from_those_that_can_answer(ranks: Ranks) -> None:
    """Of a table that the agents compute, ranks that run no code have no rows, and are told."""

    def states() -> dict[int | None, str]:
        sql = "SELECT count(*) FROM probing.sources"
        outcomes = Union(ranks.members()).query(sql, timeout_s=20).outcomes
        return {outcome.member.rank: outcome.state for outcome in outcomes}

    expected = {0: "late", 1: "late", 2: "dead", 3: "answered"}
    # An agent brings its server up when it is first asked, which takes as long as it does.
    wait_until(lambda: states() == expected, "an answer of rank 3 alone")


def test_the_command_tells_who_answered(ranks: Ranks) -> None:
    """The command writes the rows there are and the footer; a rank nobody saw gives the code."""
    words = ("--timeout", str(PATIENCE_S), "query", "--format", "csv")
    done = ranks.targets[3].run("-t", "all", *words, COUNT, timeout_s=2 * PATIENCE_S)
    assert (done.stdout, done.returncode) == ("rank,n\n0,10\n1,10\n2,10\n3,10\n", 0)
    assert "asked 4 ranks: all answered (rank 2 from its record); 4 rows, " in done.stderr
    done = ranks.targets[3].run("-t", "rank:3,9", *words, COUNT, timeout_s=2 * PATIENCE_S)
    assert (done.stdout, done.returncode) == ("rank,n\n3,10\n", 3)
    assert "asked 1 of 2 ranks: 1 answered, rank 9 not seen; 1 row, " in done.stderr


def test_the_command_explains(ranks: Ranks) -> None:
    """--explain shows what ranks are asked and what runs over that, where many are asked."""
    run = ranks.targets[3].run
    done = run("-t", "all", "query", "--explain", COUNT, timeout_s=PATIENCE_S)
    assert "on every process:\n  SELECT rank AS k0, count(*) AS p1 FROM python.steps" in done.stdout
    done = run(str(ranks.targets[3].pid), "query", "--explain", COUNT, timeout_s=PATIENCE_S)
    assert (done.returncode, "one is asked" in done.stderr) == (2, True)


def test_a_rank_with_a_fault_gives_no_short_answer(faulty: str) -> None:
    """Late, broken, cut and senseless answers give no rows at all; an old rank's are NULL."""
    answer = Union(find_members([faulty]).members).query(
        "SELECT rank, count(*) AS n, count(loss) AS losses FROM python.steps GROUP BY ALL",
        timeout_s=40,
    )
    given = {row["rank"]: (row["n"], row["losses"]) for row in answer.to_pylist()}
    full = (STEPS_EACH, STEPS_EACH)
    assert given == {0: full, 1: full, 5: (STEPS_EACH, 0), 7: full}
    states = {o.member.rank: o.state for o in answer.outcomes}
    assert states.pop(2) == "late"
    assert [rank for rank, state in states.items() if state == "failed"] == [3, 4, 6]
    errors = {o.member.rank: o.error.code for o in answer.outcomes if o.error is not None}
    assert errors[4] == "answer_cut"
    assert answer.notes == ("rank 5: python.steps has no loss there, read as NULL",)


def test_a_table_that_a_rank_lacks_is_a_note(faulty: str) -> None:
    """A rank of a version without the table has no rows; that is told, and is no failure."""
    members = [m for m in find_members([faulty]).members if m.rank in {0, 5}]
    answer = Union(members).query(
        "SELECT rank, count(*) AS n FROM python.torch_trace GROUP BY rank"
    )
    assert answer.to_pylist() == [{"rank": 0, "n": STEPS_EACH}]
    assert answer.notes == ("rank 5: there is no table python.torch_trace there",)


def test_only_ranks_that_can_have_rows_are_asked(faulty: str) -> None:
    """A condition on the rank keeps the others from being asked at all."""
    members = find_members([faulty]).members
    asked = [
        "SELECT step FROM python.steps WHERE rank IN (0, 7)",
        "SELECT sum(loss) FROM python.steps WHERE rank < 1 OR rank = 7",
    ]
    if not duckdb.__version__.startswith("1."):  # whose plans do not tell the conditions of joins
        asked.append(
            "SELECT a.step FROM python.steps a JOIN python.steps b USING (step)"
            " WHERE a.rank = 0 AND b.rank = 7"
        )
    for sql in asked:
        answer = Union(members).query(sql, timeout_s=PATIENCE_S)
        assert [o.member.rank for o in answer.outcomes] == [0, 7], sql
        assert answer.to_arrow().num_rows > 0


def test_duplicate_ranks_are_kept(faulty: str) -> None:
    """Two processes that call themselves the same rank both have their rows, and it is told."""
    zero, one = (m for m in find_members([faulty]).members if m.rank in {0, 1})
    twin = _as_rank(one, 0)
    answer = Union([zero, twin]).query(
        "SELECT rank, pid, count(*) AS n FROM python.steps GROUP BY ALL"
    )
    assert {(row["rank"], row["pid"]) for row in answer.to_pylist()} == {(0, 1000), (0, 1001)}
    assert answer.notes == ("rank 0 is there more than once: processes 1000, 1001",)


def test_a_node_server_is_asked_once_for_all_of_its_ranks(ranks: Ranks) -> None:
    """Through a node server the rows are the same as read here, with two leaves two requests."""
    server = Target([sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"],
                    ranks.home, ranks.targets[0].cwd.parent, PYTHONPATH=str(ROOT))  # fmt: skip
    try:
        card = wait_until(lambda: read_node(RunDirectory(ranks.home)), "a node server")
        members = find_members([card.listen]).members
        assert [(m.rank, m.via) for m in members] == [(rank, card.listen) for rank in range(4)]
        for sql in (
            COUNT,
            "SELECT module, stddev(duration) AS s FROM python.torch_trace GROUP BY 1 ORDER BY 1",
            "SELECT s.rank, t.module, s.loss FROM python.steps s JOIN python.torch_trace t"
            " USING (rank, step) WHERE t.module = 'head' ORDER BY ALL",
        ):
            near, far = (
                Union(those).query(sql, timeout_s=PATIENCE_S)
                for those in (ranks.members(), members)
            )
            assert_same(far.to_arrow(), near.to_arrow(), in_order=True, why=sql)
            assert [o.state for o in far.outcomes] == ["answered"] * 4
            assert (far.moved_rows, far.notes) == (near.moved_rows, ())
        with pytest.raises(ProbingError, match="B are allowed"):
            Union(members, budget_mib=0.0001).query("SELECT step, loss FROM python.steps")
    finally:
        server.reap()


def test_a_dead_node_server_costs_its_ranks_alone(faulty: str, ranks: Ranks) -> None:
    """Ranks behind a node server that is gone fail; those that can be reached answer."""
    gone = Member(
        rank=9, host="gone", pid=1, world_size=None, endpoint="http://127.0.0.1:9/v1/ranks/1-1",
        via="127.0.0.1:9",
    )  # fmt: skip
    mine = next(m for m in ranks.members() if m.rank == 3)
    answer = Union([mine, gone]).query(COUNT, timeout_s=PATIENCE_S)
    assert answer.to_pylist() == [{"rank": 3, "n": 10}]
    assert [o.state for o in answer.outcomes] == ["answered", "failed"]


def test_too_much_to_move_is_refused(faulty: str, ranks: Ranks) -> None:
    """A statement over its budget is refused with an estimate, whether rows are here or far."""
    near = ranks.members()
    far = tuple(m for m in find_members([faulty]).members if m.rank in {0, 1, 7})
    for members, rows in ((near, 40), (far, 3 * STEPS_EACH)):
        few = Union(members, budget_mib=0.0005)
        with pytest.raises(UnionTooLarge, match=rf"\({rows} rows of"):
            few.query("SELECT step, start_ns, loss FROM python.steps")
        assert few.query("SELECT count(*) AS n FROM python.steps").to_pylist() == [{"n": rows}]


def _as_rank(member: Member, rank: int) -> Member:
    """The member under another rank."""
    return dataclasses.replace(member, rank=rank)


def test_a_table_that_nobody_recorded_is_empty(ranks: Ranks) -> None:
    """A table without a ring at any rank has no rows, and no rank fails for it."""
    empty = "SELECT count(*) AS n FROM python.gradients"
    answer = Union(ranks.members()).query(empty, timeout_s=PATIENCE_S)
    assert answer.to_pylist() == [{"n": 0}]
