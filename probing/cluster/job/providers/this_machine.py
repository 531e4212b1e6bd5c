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
            found.append((folder, member_at(folder, card), card.parent))
    members = [member for _, member, _ in found]
    ranks = [
        (folder, member)
        for folder, member, parent in found
        if not _is_helper(member, parent, members)
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
    return member_of(card, str(folder.path), is_alive=folder.is_alive())


def _is_helper(member: Member, parent: int | None, others: Iterable[Member]) -> bool:
    """Whether a process is, or was, the child of one with the same rank.

    Args:
        parent: The process that started it, as it said itself.
    """
    if member.is_alive:
        facts = process.facts(member.pid) if member.pid else None
        parent = facts.parent if facts is not None else None
    if parent is None or member.rank is None:
        return False
    parents = [other for other in others if (other.pid, other.rank) == (parent, member.rank)]
    if member.is_alive:
        return any(other.is_alive for other in parents)
    return any(o.job == member.job and o.started_ns < member.started_ns for o in parents)
