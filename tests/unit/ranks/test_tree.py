"""Who is asked through whom, and that nobody is lost or told twice; no process is needed."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from probing.cluster.job.handing_on import place, reachable
from probing.cluster.job.tree import Asked, Reached, ask_nodes, groups_of
from probing.errors import NotProbing, ProbingError
from probing.messages.tree import Node
from probing.rundir.folders import RunDirectory

pytestmark = pytest.mark.anypython


class Network:
    """Nodes of which some are down, some know no handing on, and some reach not all others.

    Attributes:
        asked: Who asked whom, the one at the root as an empty name.
    """

    def __init__(self, *, down: set[str], old: set[str], fan_out: int) -> None:
        self.down, self.old, self.fan_out = down, old, fan_out
        self.cut: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def question(self, nodes: Sequence[str], asker: str = "") -> Asked[list[str]]:
        """What comes of asking nodes; the answer of a node is its name."""

        def ask(group: Sequence[str], _: float) -> Reached[list[str]]:
            first, *others = group
            with self._lock:
                self.asked.append((asker, first))
            if first in self.down or (asker, first) in self.cut:
                raise NotProbing(first, "the connection was refused")
            if not others:
                return Reached(value=[first], nodes=(first,))
            if first in self.old:
                raise NotProbing(first, "it does not know how")
            found = self.question(others, first)
            names = [name for one in found.values for name in one.value]
            return Reached(value=[first, *names], nodes=(first, *names))

        return ask_nodes(nodes, ask, timeout_s=20, fan_out=self.fan_out)


def test_groups_are_few_even_and_in_order() -> None:
    """There are at most so many groups as may be asked; they differ by one node at most."""
    for count in (0, 1, 31, 32, 33, 40, 1250):
        nodes = [str(i) for i in range(count)]
        groups = groups_of(nodes, 32)
        assert [node for group in groups for node in group] == nodes
        assert len(groups) == min(32, count)
        sizes = {len(group) for group in groups}
        assert count == 0 or max(sizes) - min(sizes) <= 1


def test_a_thousand_nodes_are_asked_by_a_few() -> None:
    """In a tree all answer once, in their order, and no one asks more than the fan-out."""
    network = Network(down=set(), old=set(), fan_out=8)
    nodes = [f"n{i:03}" for i in range(300)]
    found = network.question(nodes)
    assert [name for one in found.values for name in one.value] == nodes
    assert not found.failed
    by_asker = [asker for asker, _ in network.asked]
    assert max(by_asker.count(asker) for asker in set(by_asker)) == 8
    assert sorted(node for _, node in network.asked) == nodes


@pytest.mark.parametrize("seed", range(6))
def test_every_node_is_accounted_for_once(seed: int) -> None:
    """Whoever is down, old, or not reachable from others: each node answers once, or has failed."""
    draw = random.Random(seed)
    nodes = [f"n{i:02}" for i in range(60)]
    network = Network(down=set(draw.sample(nodes, 8)), old=set(draw.sample(nodes, 10)), fan_out=3)
    network.cut = {(a, b) for a in nodes for b in nodes if draw.random() < 0.2}
    found = network.question(nodes)
    names = sorted(name for one in found.values for name in one.value)
    assert names == [node for node in nodes if node not in network.down]
    assert set(found.failed) == network.down


def test_an_answer_for_others_than_those_named_is_none() -> None:
    """A leader that accounts for a node it was not asked for, or not for itself, is asked alone."""

    def ask(group: Sequence[str], _: float) -> Reached[str]:
        if len(group) == 1:
            return Reached(value="alone", nodes=(group[0],))
        return Reached(
            value="wrong", nodes=(group[0], "stranger") if "a" in group else tuple(group[1:])
        )

    found = ask_nodes(list("abcdef"), ask, timeout_s=20, fan_out=2)
    assert [one.value for one in found.values] == ["alone"] * 6


def test_some_errors_end_the_asking() -> None:
    """An error that is said to be final is everybody's: no one of the group is asked again."""
    asked = []

    def ask(group: Sequence[str], _: float) -> Reached[None]:
        asked.append(group[0])
        raise NotProbing(group[0], "too much")

    found = ask_nodes(
        list("abcd"), ask, timeout_s=20, fan_out=2, final=frozenset({NotProbing.code})
    )
    assert (sorted(asked), set(found.failed)) == (["a", "c"], set("abcd"))
    assert all(isinstance(error, ProbingError) for error in found.failed.values())


@pytest.mark.parametrize(
    ("url", "listen", "is_here", "may", "may_be_near"),
    [
        ("http://127.0.0.1:9741", "127.0.0.1:9741", True, True, True),
        ("http://127.0.0.1:9741", "127.0.0.1:9741", False, True, False),  # a tunnel of who asks
        ("https://[::1]:9741", "https://10.0.0.1:9741", False, True, False),
        ("http://10.0.0.2:9741", "https://10.0.0.1:9741", False, False, False),
        ("http://127.0.0.1:9742", "https://127.0.0.1:9741", True, False, True),
        ("https://10.0.0.2:9741", "https://10.0.0.1:9741", False, True, False),
        ("https://node2:9741", "127.0.0.1:9741", True, True, True),
    ],
)  # fmt: skip
def test_a_token_goes_on_only_where_it_is_as_safe(
    tmp_path: Path, url: str, listen: str, *, is_here: bool, may: bool, may_be_near: bool
) -> None:
    """A loopback address means something to its own machine alone; encrypted stays encrypted."""
    for asker in (place() if is_here else "there", *(() if is_here else ("",))):
        found = reachable(
            [Node(url=url)], RunDirectory(tmp_path), token="t", listen=listen, asker=asker
        )
        assert set(found) == ({url} if may else set())
        assert all(address.is_far is not may_be_near for address in found.values())
