"""Questions handed on from node server to node server, three deep, and some of them out of order.

Seven of them, each with a home of its own as if it were another machine; two are asked at most.
"""

from __future__ import annotations

import dataclasses
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from probing.cli import target as cli_target
from probing.cli.ask import asking, many
from probing.cli.reports import status_report
from probing.cluster.job.asking import Coverage, Outcome, ask_all
from probing.cluster.job.members import find_members
from probing.cluster.job.membership import Member
from probing.cluster.job.rank_sets import rank_set
from probing.cluster.ranks.gather_facts import gather_facts
from probing.cluster.ranks.gather_times import gather_times
from probing.cluster.ranks.gathering import Asking
from probing.cluster.union.query import Union
from probing.diagnosis import out_of_memory
from probing.diagnosis.hang.flights import FLIGHT, flight_of
from probing.messages.reading import Reading
from tests.harness.ranks import assert_same
from tests.harness.targets import ROOT, Target, program_path, start_program
from tests.ranks.connections import Connections

pytestmark = [pytest.mark.anypython, pytest.mark.slow, pytest.mark.alone]

NODES = 7
OLD = 6
"""The one whose server does not know how to hand on."""
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
    """The node servers, and a rank at each.

    Attributes:
        ranks: The processes that are asked about.
        servers: By rank.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.ranks: list[Target] = []
        self.servers: list[Target] = []
        for rank in range(NODES):
            home, cwd = folder / f"home{rank}", folder / f"rank{rank}"
            cwd.mkdir()
            env = {"RANK": str(rank), "WORLD_SIZE": str(NODES), "TORCHELASTIC_RUN_ID": "tree"}
            env |= {"PROBING": "all", "LOCAL_RANK": "0"}
            target = start_program("rank", str(40 + rank), "wait", home=home, cwd=cwd, **env)
            self.ranks.append(target)
            stack.callback(target.reap)
            cwd = folder / f"node{rank}"
            cwd.mkdir()
            program = (
                [str(program_path("old_node"))] if rank == OLD else ["-m", "probing.cluster.node"]
            )
            argv = [sys.executable, *program, "--listen", "127.0.0.1:0"]
            env = {"PYTHONPATH": str(ROOT), "PROBING_TOKEN": TOKEN}
            env["PROBING_QUERY_TIMEOUT_S"] = str(PATIENCE_S)
            self.servers.append(Target(argv, home, cwd, **env))
            stack.callback(self.servers[-1].reap)
        for target in self.ranks:
            target.wait_for_output("ready")
            target.wait_for_agent()
        for server in self.servers:
            server.wait_for_output("listening on")

    @property
    def addresses(self) -> list[str]:
        """By rank."""
        found = [re.search(r"listening on (\S+);", server.output) for server in self.servers]
        return [match[1] for match in found if match is not None]

    def members(self) -> tuple[Member, ...]:
        """Their ranks, without asking some through others."""
        return find_members(self.addresses, token=TOKEN, timeout_s=PATIENCE_S).members


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Seven node servers."""
    with ExitStack() as stack:
        yield Nodes(tmp_path_factory.mktemp("nodes"), stack)


@pytest.fixture(scope="module")
def connections(nodes: Nodes) -> Connections:
    """Of this process to the node servers."""
    return Connections(nodes.addresses)


def test_the_answers_through_a_tree_are_those_without(
    nodes: Nodes, connections: Connections
) -> None:
    """Merged and moved, the answer is that of the rings themselves; two of seven were asked."""
    members = nodes.members()
    near = find_members([str(rank.folder.path) for rank in nodes.ranks]).members
    moved = []
    for sql in (MERGED, MOVED):
        here = Union(near).query(sql, timeout_s=PATIENCE_S)
        union = Union(members, token=TOKEN, fan_out=2)
        tree, asked = connections.of(partial(union.query, sql, timeout_s=PATIENCE_S))
        assert Coverage.of(tree.outcomes).words() == "asked 7 ranks: all answered"
        assert_same(tree.rows.to_arrow(), here.rows.to_arrow(), in_order=True, why=sql)
        assert (asked, tree.notes) == ("0,3", ())
        moved.append((tree.moved_rows, here.moved_rows))
    modules = 7
    assert moved[0] == (2 * modules, modules)  # of two groups, and of all rings at once
    assert moved[1][0] == moved[1][1]


def test_stacks_and_processes_come_the_same_ways(nodes: Nodes, connections: Connections) -> None:
    """Finding the processes and taking their stacks asks two node servers; the old one itself."""
    found, asked = connections.of(
        lambda: find_members(nodes.addresses, token=TOKEN, timeout_s=PATIENCE_S, fan_out=2)
    )
    assert (found.members, asked) == (nodes.members(), f"0,3,{OLD}")
    taken, asked = connections.of(
        lambda: ask_all(
            found.members,
            lambda process, _: process.backtrace(),
            timeout_s=PATIENCE_S,
            token=TOKEN,
            ahead=[Reading(route="backtrace")],
            fan_out=2,
        )
    )
    assert asked == f"0,3,{OLD}"
    assert Coverage.of(taken).words() == "asked 7 ranks: all answered"
    pids = [outcome.value.pid for outcome in taken if outcome.value is not None]
    assert pids == [m.pid for m in found.members]


def test_ranks_are_compared_the_same_ways(nodes: Nodes, connections: Connections) -> None:
    """What `stragglers` and `diff` compare asks two node servers and the old one, and is equal."""
    members = nodes.members()
    job = Asking(members=members, timeout_s=PATIENCE_S, token=TOKEN, fan_out=2)
    times, asked = connections.of(lambda: gather_times(job, last=3))
    assert (times[0], asked) == (gather_times(_without_a_tree(job), last=3)[0], f"0,3,{OLD}")
    assert [len(one.steps) for one in times[0]] == [3] * NODES
    facts, asked = connections.of(lambda: gather_facts(job, with_parameters=False))
    told = [one.facts for one in facts[0]]
    near = [one.facts for one in gather_facts(_without_a_tree(job), with_parameters=False)[0]]
    assert (told, asked) == (near, f"0,3,{OLD}")
    assert {fact.kind for one in told for fact in one.facts} >= {"setting", "version"}


def test_ranks_look_at_the_same_step_the_same_ways(nodes: Nodes, connections: Connections) -> None:
    """The step at which `diff` has ranks look is told to them through two node servers."""
    job = Asking(members=nodes.members(), timeout_s=PATIENCE_S, token=TOKEN, fan_out=2)
    (told, outcomes), asked = connections.of(lambda: gather_facts(job))
    assert Coverage.of(outcomes).words() == "asked 7 ranks: all answered"
    assert asked == f"0,3,{OLD}"
    assert {one.notes for one in told} == {("the process has not imported torch",)}


NOBODY: Any = None
READING: dict[str, tuple[Any, list[Reading]]] = {
    "tables": (lambda p: p.tables(), [Reading(route="tables")]),
    "config": (lambda p: p.settings(), [Reading(route="settings")]),
    "jobs": (lambda p: p.jobs(), [Reading(route="jobs")]),
    "arm": (lambda p: p.armed(), [Reading(route="armed")]),
    "act list": (lambda p: p.acts(), [Reading(route="acts")]),
    "status": (status_report.report_on, status_report.readings(PATIENCE_S)),
    "hang": (lambda p: flight_of(p, NOBODY), [Reading.of_query(FLIGHT, PATIENCE_S)]),
    "oom": (out_of_memory.report_on, out_of_memory.readings(PATIENCE_S)),
}
"""What commands over many ranks ask each of them."""


def test_what_commands_read_comes_the_same_ways(nodes: Nodes, connections: Connections) -> None:
    """A command that shows rank after rank asks for all it reads through two node servers."""
    target = cli_target.Target(endpoints=tuple(nodes.addresses), timeout_s=PATIENCE_S, token=TOKEN)
    target.has_many  # noqa: B018 - whoever is asked for that is asked only once
    _, found = connections.counted(lambda: many.membership_of(target))
    for name, (question, ahead) in READING.items():
        replies = asking.Replies(target, question, ahead=ahead, fan_out=2)
        shown, made = connections.counted(partial(_all_of, replies))
        assert [reply.endpoint for reply in shown] == [f"rank {rank}" for rank in range(NODES)]
        assert rank_set((made - found).elements()) == f"0,3,{OLD}", name
        assert [reply.value for reply in shown] == [
            reply.value for reply in asking.Replies(target, question)
        ]


def _all_of(replies: asking.Replies[Any]) -> list[asking.Reply[Any]]:
    return list(replies)


def _without_a_tree(job: Asking) -> Asking:
    return dataclasses.replace(job, fan_out=NODES)


def test_who_is_gone_costs_nobody_else(nodes: Nodes) -> None:
    """With the first of a group killed, and the first of a group below, all others answer."""
    members = nodes.members()
    gone = {0, 5}
    for rank in gone:
        nodes.servers[rank].kill()
    outcomes = _asked(members, PATIENCE_S)
    assert Coverage.of(outcomes).words() == "asked 7 ranks: 5 answered, ranks 0,5 failed"
    assert {o.member.rank for o in outcomes if o.state == "failed"} == gone


@pytest.mark.nightly
def test_who_is_silent_costs_nobody_else(nodes: Nodes) -> None:
    """With the first of a group stopped, the others answer in time, and it is told to be late."""
    members = _without(nodes, {0, 5})
    nodes.servers[3].process.send_signal(signal.SIGSTOP)
    try:
        outcomes = _asked(members, 60)
    finally:
        nodes.servers[3].process.send_signal(signal.SIGCONT)
    assert {o.member.rank: o.state for o in outcomes} == {
        **dict.fromkeys((1, 2, 4, 6), "answered"), 3: "late",
    }  # fmt: skip


def _without(nodes: Nodes, gone: set[int]) -> tuple[Member, ...]:
    """The members behind the servers that are there."""
    addresses = [a for rank, a in enumerate(nodes.addresses) if rank not in gone]
    return find_members(addresses, token=TOKEN, timeout_s=PATIENCE_S).seen


def _asked(members: tuple[Member, ...], limit_s: float) -> tuple[Outcome[Any], ...]:
    """What became of members that were asked through a tree; who has answered has its row."""
    sql = "SELECT rank, count(*) AS n FROM python.steps GROUP BY rank ORDER BY rank"
    answer = Union(members, token=TOKEN, fan_out=2).query(sql, timeout_s=limit_s)
    answered = [o.member.rank for o in answer.outcomes if o.state == "answered"]
    assert [row["rank"] for row in answer.rows.to_pylist()] == answered
    return answer.outcomes
