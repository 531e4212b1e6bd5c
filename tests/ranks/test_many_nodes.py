"""Several machines asked at once, and some of them out of order.

Each node server has a home of its own as if it were another machine, and two ranks.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from probing.cluster.job.members import find_members
from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import Coverage, Outcome, ask_all
from probing.cluster.union.query import Union
from tests.harness.ranks import assert_same
from tests.harness.targets import ROOT, Target, start_program

pytestmark = [pytest.mark.anypython, pytest.mark.slow]

NODES = 3
EACH = 2
TOKEN = "of-the-whole-job"
PATIENCE_S = 600
MERGED = (
    "SELECT module, count(*) AS n, sum(duration_ns) AS d, avg(duration) AS a, stddev(step) AS s,"
    " arg_max(rank, duration) AS r FROM python.torch_trace GROUP BY module ORDER BY module"
)
MOVED = (
    "SELECT s.rank, t.module, s.loss FROM python.steps s JOIN python.torch_trace t"
    " USING (rank, step) WHERE t.module = 'head' ORDER BY ALL"
)


class Nodes:
    """The node servers, and the ranks behind them.

    Attributes:
        ranks: The processes that are asked about.
        servers: By machine.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.ranks: list[Target] = []
        self.servers: list[Target] = []
        self._folder, self._stack = folder, stack
        for rank in range(NODES * EACH):
            home, cwd = folder / f"home{rank // EACH}", folder / f"rank{rank}"
            cwd.mkdir()
            env = {"RANK": str(rank), "WORLD_SIZE": str(NODES * EACH), "PROBING": "all"}
            env |= {"TORCHELASTIC_RUN_ID": "many", "LOCAL_RANK": str(rank % EACH)}
            target = start_program("rank", str(40 + rank), "wait", home=home, cwd=cwd, **env)
            self.ranks.append(target)
            stack.callback(target.reap)
        for number in range(NODES):
            self.servers.append(self._started(number))
        for target in self.ranks:
            target.wait_for_output("ready")
            target.wait_for_agent()
        for server in self.servers:
            server.wait_for_output("listening on")

    def _started(self, number: int) -> Target:
        """The node server of a machine, which begins to serve."""
        cwd = self._folder / f"node{number}"
        cwd.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "probing.cluster.node", "--listen", "127.0.0.1:0"]
        env = {"PYTHONPATH": str(ROOT), "PROBING_TOKEN": TOKEN}
        env["PROBING_QUERY_TIMEOUT_S"] = str(PATIENCE_S)
        server = Target(argv, self._folder / f"home{number}", cwd, **env)
        self._stack.callback(server.reap)
        return server

    def replace(self, number: int) -> None:
        """Start another node server in the place of one that is gone."""
        self.servers[number] = self._started(number)
        self.servers[number].wait_for_output("listening on")

    @property
    def addresses(self) -> list[str]:
        """By machine."""
        found = [re.search(r"listening on (\S+);", server.output) for server in self.servers]
        return [match[1] for match in found if match is not None]

    def members(self) -> tuple[Member, ...]:
        """Their ranks."""
        return find_members(self.addresses, token=TOKEN, timeout_s=PATIENCE_S).members


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three node servers with two ranks each."""
    with ExitStack() as stack:
        yield Nodes(tmp_path_factory.mktemp("nodes"), stack)


def test_the_answers_of_machines_are_those_of_the_rings(nodes: Nodes) -> None:
    """Merged and moved, the answer is that of the rings themselves; a machine gives its part."""
    members = nodes.members()
    near = find_members([str(rank.folder.path) for rank in nodes.ranks]).members
    moved = []
    for sql in (MERGED, MOVED):
        here = Union(near).query(sql, timeout_s=PATIENCE_S)
        there = Union(members, token=TOKEN).query(sql, timeout_s=PATIENCE_S)
        assert Coverage.of(there.outcomes).words() == "asked 6 ranks: all answered"
        assert_same(there.to_arrow(), here.to_arrow(), in_order=True, why=sql)
        assert there.notes == ()
        moved.append((there.moved_rows, here.moved_rows))
    modules = 7
    assert moved[0] == (NODES * modules, modules)  # of each machine, and of all rings at once
    assert moved[1][0] == moved[1][1]


def test_ranks_of_several_machines_show_their_stacks(nodes: Nodes) -> None:
    """Every rank behind every node server answers for itself, in the order of the ranks."""
    members = nodes.members()
    taken = ask_all(
        members, lambda process, _: process.backtrace(), timeout_s=PATIENCE_S, token=TOKEN
    )
    assert Coverage.of(taken).words() == "asked 6 ranks: all answered"
    pids = [outcome.value.pid for outcome in taken if outcome.value is not None]
    assert pids == [m.pid for m in members] == [rank.pid for rank in nodes.ranks]


def test_who_is_silent_costs_nobody_else(nodes: Nodes) -> None:
    """With a node server stopped, the ranks of others answer in time; its own are told late."""
    members = nodes.members()
    expected = {**dict.fromkeys((0, 1, 4, 5), "answered"), 2: "late", 3: "late"}
    nodes.servers[1].process.send_signal(signal.SIGSTOP)
    try:
        for limit_s in (10, 30, 90):  # a busy machine is late itself
            began = time.monotonic()
            states = {o.member.rank: o.state for o in _asked(members, limit_s)}
            took_s = time.monotonic() - began
            if states == expected:
                break
    finally:
        nodes.servers[1].process.send_signal(signal.SIGCONT)
    assert states == expected
    assert took_s < 2 * limit_s


def test_who_is_gone_costs_nobody_else(nodes: Nodes) -> None:
    """With a node server killed, the ranks of all others answer."""
    members = nodes.members()
    nodes.servers[0].kill()
    outcomes = _asked(members, PATIENCE_S)
    nodes.replace(0)
    assert Coverage.of(outcomes).words() == "asked 6 ranks: 4 answered, ranks 0-1 failed"


def _asked(members: tuple[Member, ...], limit_s: float) -> tuple[Outcome[Any], ...]:
    """What became of members; who has answered has its row."""
    sql = "SELECT rank, count(*) AS n FROM python.steps GROUP BY rank ORDER BY rank"
    answer = Union(members, token=TOKEN).query(sql, timeout_s=limit_s)
    answered = [o.member.rank for o in answer.outcomes if o.state == "answered"]
    assert [row["rank"] for row in answer.to_pylist()] == answered
    return answer.outcomes
