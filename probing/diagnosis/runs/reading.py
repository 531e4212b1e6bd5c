"""Finds a run by what the user calls it, and reads what is on record of it.

Rules of this file: a run is one process; of a job, the rank that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...arguments import command_without_secrets, what_python_runs
from ...client.base import Process
from ...client.connecting import connect
from ...cluster.job.members import find_members
from ...cluster.job.membership import Member
from ...errors import BadEndpoint, ProbingError
from ...ring.peek import as_recorded
from .comparison import RunComparison, compare_runs
from .record import Name, Run, read_run

_STARTING_NS = 3_000_000_000
"""A command loads its libraries before it asks, which on few processors slows the training."""


def find_run(word: str, *, token: str | None, timeout_s: float, rank: int | None = None) -> Member:
    """The one process that is meant.

    Args:
        rank: Which one, where the word means a whole job; None for the lowest.

    Raises:
        BadEndpoint: It means several processes that are no ranks of one job.
        ProbingError: Nothing matches.
    """
    membership = find_members((word,), token=token, timeout_s=timeout_s)
    seen = [member for member in membership.members if member.state != "missing"]
    if len(seen) == 1:
        return seen[0]
    ranked = {member.rank: member for member in seen if member.rank is not None}
    if len(ranked) != len(seen):
        raise BadEndpoint(word, f"it means {len(seen)} processes; name one run by its pid")
    return ranked[rank] if rank in ranked else ranked[min(ranked)]


def compare_members(
    before: Member, after: Member, *, names: tuple[str, str], token: str | None, timeout_s: float
) -> RunComparison:
    """Read both and put them beside each other.

    Args:
        names: What the user calls them.

    Raises:
        ProbingError: One of them cannot be read.
    """
    until_ns = time.perf_counter_ns() - _STARTING_NS
    (first, hidden), (second, also_hidden) = (
        _read(connect(member.endpoint, token=token, timeout_s=timeout_s), member, name, until_ns)
        for member, name in zip((before, after), names, strict=True)
    )
    return compare_runs(first, second, frozenset(hidden | also_hidden))


def _read(process: Process, member: Member, name: str, until_ns: int) -> tuple[Run, set[Name]]:
    """What is on record of one, and which of its names are secret.

    Args:
        until_ns: When it was first looked at, by the monotonic clock.
    """

    def query(sql: str) -> list[dict[str, Any]]:
        return process.query(sql).to_pylist()

    folder = process.folder
    is_alive = folder.is_alive() if folder is not None else member.is_alive is not False
    environment = _environment(process)
    card = process.status()
    until = as_recorded(folder.ring("steps"), until_ns) if folder is not None else None
    run = read_run(
        f"run {Path(name).name if '/' in name else name}",
        query,
        environment,
        command=script_of(card.command),
        state="running" if is_alive else "ended",
        **({"until_ns": until} if is_alive and until is not None else {}),
    )
    secrets = {(row["kind"], row["name"]) for row in environment if row["is_secret"]}
    return run, secrets


def _environment(process: Process) -> list[dict[str, Any]]:
    """The rows of python.environment; none where they are not to be had."""
    try:
        return process.live("environment").dicts()
    except ProbingError:
        return []


def script_of(words: Sequence[str]) -> str:
    """The script and its arguments, without what runs it and without secrets."""
    words = command_without_secrets(words)
    script, *arguments = what_python_runs(words[1:]) or words[:1] or [""]
    if script == "-m":
        return " ".join(arguments)
    return " ".join([Path(script).name, *arguments])
