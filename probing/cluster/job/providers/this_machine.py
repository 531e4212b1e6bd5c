"""The processes of this machine, by the run directory.

Rules of this file: reads cards and /proc; only where states are wanted anybody is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ....client.listing import summarize
from ....linux import process
from ....messages.card import Card
from ....rundir.folders import ProcessFolder, RunDirectory
from ..membership import Member, member_of


def members_here(directory: RunDirectory, *, states: bool = False) -> list[Member]:
    """Every process with a card, alive or ended.

    Those of other containers and machines that share the run directory are left out: whether they
    run cannot be told here.
    A child that inherited its parent's rank, such as a worker that loads data, is no rank.

    Args:
        states: Whether to find out what each of them does.
    """
    found = []
    for folder in directory.folders():
        card = folder.read_card()
        if card is not None and not folder.may_run_elsewhere():
            found.append((folder, member_at(folder, card), card))
    known = [(member, card) for _, member, card in found]
    ranks = [
        (folder, member) for folder, member, card in found if not _is_helper(member, card, known)
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


def _is_helper(member: Member, card: Card, others: Iterable[tuple[Member, Card]]) -> bool:
    """Whether a process is, or was, the child of one with the same rank.

    Who started one that has ended is known by what it said itself, in its own pid namespace.
    """
    if member.rank is None:
        return False
    same = [(other, its) for other, its in others if other.rank == member.rank]
    if member.is_alive:
        facts = process.facts(member.pid) if member.pid else None
        parent = facts.parent if facts is not None else None
        return any(other.is_alive and other.pid == parent for other, _ in same)
    place = (card.parent, card.pid_namespace)
    return any(
        its.job == card.job
        and its.started_ns < card.started_ns
        and (its.pid, its.pid_namespace) == place
        for _, its in same
    )
