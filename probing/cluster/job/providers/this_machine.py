"""The processes of this machine, by the run directory.

Rules of this file: reads cards and /proc; only where states are wanted anybody is asked.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

from ....client.listing import summarize
from ....messages.card import Card
from ....reach.starters import has_started, is_starter, size_of, starters_of
from ....rundir.elders import ancestors
from ....rundir.folders import ProcessFolder, RunDirectory
from ..membership import Member, member_of


class _Known:
    """Those that are to be told apart, by who they are and by who has started them.

    Attributes:
        by_pid: Their cards by pid and pid namespace.
    """

    def __init__(self, members: list[tuple[Member, Card]]) -> None:
        self.by_pid: dict[tuple[int, int], list[Card]] = {}
        self._by_number: dict[int | None, list[tuple[Member, Card]]] = {}
        self._children: dict[tuple[int | None, int], list[tuple[Member, Card]]] = {}
        for member, card in members:
            self.by_pid.setdefault((card.pid, card.pid_namespace), []).append(card)
            self._by_number.setdefault(member.pid, []).append((member, card))
            place = (card.parent, card.pid_namespace)
            self._children.setdefault(place, []).append((member, card))

    def living(self, pid: int) -> list[Card]:
        """The cards of those that live and have a pid here."""
        return [card for member, card in self._by_number.get(pid, ()) if member.is_alive]

    def children_of(self, member: Member, card: Card) -> list[Card]:
        """The cards of those that a process has started; of one that lives, of the living."""
        children = self._children.get((card.pid, card.pid_namespace), ())
        return [its for child, its in children if child.is_alive or not member.is_alive]


def members_here(directory: RunDirectory, *, states: bool = False) -> list[Member]:
    """Every process with a card, alive or ended.

    Those of other containers and machines that share the run directory are left out: whether they
    run cannot be told here.
    A child that inherited its parent's rank, such as a worker that loads data, is no rank; nor is
    a parent whose children are the ranks, and had inherited its. What a rank that trains starts,
    such as an inference engine of more processes than there are ranks, is none either.

    Args:
        states: Whether to find out what each of them does.
    """
    found = []
    for folder in directory.folders():
        card = folder.read_card()
        if card is not None and not folder.may_run_elsewhere():
            found.append((folder, member_at(folder, card), card))
    known = _Known([(member, card) for _, member, card in found])
    ranks = [
        (folder, member)
        for folder, member, card in found
        if not _is_helper(member, card, known)
        and not is_starter(card, known.children_of(member, card))
    ]
    if not (states and ranks):
        return [member for _, member in ranks]
    with ThreadPoolExecutor(max_workers=min(32, len(ranks))) as pool:
        return list(pool.map(lambda pair: _with_state(*pair), ranks))


def _with_state(folder: ProcessFolder, member: Member) -> Member:
    summary = summarize(folder)
    return dataclasses.replace(member, state_word=summary.state, step=summary.step)


def member_at(folder: ProcessFolder, card: Card) -> Member:
    """The member that a card in a run folder describes."""
    member = member_of(card, str(folder.path), is_alive=folder.is_alive())
    return dataclasses.replace(member, pid=folder.pid)


def _is_helper(member: Member, card: Card, others: _Known) -> bool:
    """Whether a process is, or was, the child of a rank whose variables it has inherited.

    Those are of the same rank, or of the launcher that the parent's larger group knows better than;
    a child of a larger group than its parent's is a rank itself, but where the parent trains: then
    it, and what it has started, are helpers.
    Who started one that has ended is known by what it said itself, in its own pid namespace.
    """
    if member.rank is None:
        return False
    if member.is_alive:
        above = ancestors(member.pid) if member.pid else ()
        return any(
            _may_have_lent(its, card) and (place == 0 or _reaches(its, card))
            for place, pid in enumerate(above)
            for its in others.living(pid)
        )
    parents = others.by_pid.get((card.parent or 0, card.pid_namespace), ())
    if any(
        its.job == card.job and has_started(its, card) and _may_have_lent(its, card)
        for its in parents
    ):
        return True
    over = starters_of(card, others.by_pid)
    return any(_reaches(its, card) and _may_have_lent(its, card) for its in over)


def _reaches(elder: Card, card: Card) -> bool:
    """Whether what one has lent goes beyond its children, to whatever those start."""
    return elder.has_trained and elder.job == card.job


def _may_have_lent(parent: Card, child: Card) -> bool:
    """Whether a child of this one that says where it stands may say so as its child alone."""
    if size_of(parent) > size_of(child) and child.job in {None, parent.job}:
        return True
    if parent.has_trained and parent.rank is not None and size_of(parent) < size_of(child):
        return child.job in {None, parent.job}
    return parent.rank == child.rank and size_of(parent) >= size_of(child)
