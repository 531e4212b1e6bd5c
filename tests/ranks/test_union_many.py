"""SQL over 16 and over 64 real processes, some of which hang, are stopped or are dead."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from probing.cluster.job.members import find_members
from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import Coverage
from probing.cluster.union.query import Union
from probing.errors import ProbingError
from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import read_node
from tests.harness.ranks import Ranks, assert_same, running_ranks
from tests.harness.targets import ROOT, Target, stop, wait_until

pytestmark = [pytest.mark.anypython, pytest.mark.nightly]

QUERIES = (
    "SELECT rank, count(*) AS n FROM python.steps GROUP BY rank ORDER BY rank",
    "SELECT module, count(*) AS n, sum(duration_ns) AS s, stddev(duration) AS d"
    " FROM python.torch_trace GROUP BY module ORDER BY module NULLS LAST",
    "SELECT s.rank, s.step, t.module FROM python.steps s JOIN python.torch_trace t"
    " USING (rank, step) WHERE t.module = 'head' AND s.loss IS NOT NULL ORDER BY ALL",
    "SELECT step, rank, rank() OVER (PARTITION BY step ORDER BY duration, rank) AS place"
    " FROM python.steps QUALIFY place = 1 ORDER BY step",
)
PATIENCE_S = 500
ROWS = 80


@pytest.mark.parametrize("count", [16, 64])
def test_many_ranks_are_one_database(tmp_path: Path, count: int) -> None:
    """The rows are those of one database over all ranks, whatever state some of them are in.

    One holds the interpreter lock, one is stopped, one is killed; and it is the same through a node
    server, which refuses a wrong token. A node server that is gone costs its own ranks alone.
    """
    with running_ranks(tmp_path, count, rows=ROWS, then=("hold",)) as ranks:
        expected = _expected(ranks)
        _check(ranks.members(), expected)
        stop(ranks.targets[1].pid)
        ranks.targets[2].kill()
        words = _check(ranks.members(), expected)
        assert words == f"asked {count} ranks: all answered (rank 2 from its record)"
        listed = ranks.targets[3].run("list", "--job", timeout_s=PATIENCE_S)
        assert f"job ranks: {count} of {count} ranks seen" in listed.stdout, listed.stderr
        _check_node_server(ranks, expected)


def _expected(ranks: Ranks) -> list[pa.Table]:
    """The answers of one database that holds all rows."""
    with ranks.concatenated() as database:
        return [database.sql(sql).to_arrow_table() for sql in QUERIES]


def _check(members: tuple[Member, ...], expected: list[pa.Table]) -> str:
    """Ask everything; returns the footer of the last answer."""
    words = ""
    for sql, rows in zip(QUERIES, expected, strict=True):
        answer = Union(members).query(sql, timeout_s=PATIENCE_S)
        words = Coverage.of(answer.outcomes).words()
        assert_same(answer.to_arrow(), rows, in_order=True, why=f"{sql}: {words}")
    return words


def _check_node_server(ranks: Ranks, expected: list[pa.Table]) -> None:
    """The same through a node server, which tells nothing to who has no token."""
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
    server = Target(argv, ranks.home, ranks.home.parent, PYTHONPATH=str(ROOT))
    try:
        card = wait_until(lambda: read_node(RunDirectory(ranks.home)), "a node server")
        with pytest.raises(ProbingError, match="the token is wrong"):
            find_members([card.listen], token="wrong")
        far = find_members([card.listen], timeout_s=PATIENCE_S).members
        assert [m.rank for m in far] == list(range(len(ranks.targets)))
        _check(far, expected)
    finally:
        server.reap()
    with pytest.raises(ProbingError, match="refused"):
        find_members([card.listen])
    mine = [m for m in ranks.members() if m.rank == 3]
    answer = Union([*mine, *far[:2]]).query(QUERIES[0], timeout_s=PATIENCE_S)
    assert [row["rank"] for row in answer.to_pylist()] == [3]
    assert [o.state for o in answer.outcomes] == ["answered", "failed", "failed"]
