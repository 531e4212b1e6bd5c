"""Two runs of a history beside each other, as `probing diff` puts those of this machine.

Rules of this file: finds what is meant and reads it; nothing is judged here.
"""

from __future__ import annotations

import shlex
from typing import Any

from ...errors import NoSuchRun, ProbingError
from ...history.query import Chosen, History
from .comparison import RunComparison, compare_runs
from .reading import script_of
from .record import Run, read_run

_PROCESSES = (
    "SELECT run, rank, command, has_ended, started_ns FROM probing.processes"
    " ORDER BY started_ns DESC, rank NULLS FIRST"
)
_ENVIRONMENT = "SELECT kind, name, value, is_secret, fingerprint FROM python.environment"
_MOST = 5


def compare_kept(
    place: str, words: tuple[str, str], *, rank: int | None, timeout_s: float, notes: list[str]
) -> tuple[RunComparison, tuple[str, str]]:
    """Compare two runs, of several ranks the same one.

    Args:
        words: Their names, or parts of these that only they have.
        rank: Which one; None for the lowest that both have.
        timeout_s: What each question may take.
        notes: Gets sentences about what was left out.

    Returns:
        What differs, and the whole names.

    Raises:
        NoSuchRun: There is none of a name, or several, or none with that rank.
        ProbingError: The history cannot be read.
    """
    with History(place, notes).query(_PROCESSES, timeout_s=timeout_s) as answer:
        rows = answer.to_pylist()
    runs = [_meant(word, rows) for word in words]
    ranks = [{row["rank"] for row in rows if row["run"] == run} for run in runs]
    common = sorted(ranks[0] & ranks[1], key=lambda one: -1 if one is None else one)
    if rank is not None and rank not in common:
        missing = runs[0] if rank not in ranks[0] else runs[1]
        raise NoSuchRun(f"{missing} has no rank {rank}", "probing.processes has those it has")
    if not common:
        raise NoSuchRun(f"{runs[0]} and {runs[1]} have no rank in common", "")
    which = common[0] if rank is None else rank
    first, second = (_read(place, Chosen(run, which), rows, timeout_s, notes) for run in runs)
    secrets = frozenset(first[1] | second[1])
    return compare_runs(first[0], second[0], secrets), (runs[0], runs[1])


def _meant(word: str, rows: list[dict[str, Any]]) -> str:
    """The run that a word means."""
    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    found = [name for name in names if name == word] or [name for name in names if word in name]
    if len(found) == 1:
        return found[0]
    shown = ", ".join((found or names)[:_MOST])
    more = len(found or names) - _MOST
    shown += f" and {more:,} more" if more > 0 else ""
    if found:
        raise NoSuchRun(f"{word!r} is part of the names of {len(found)} runs", shown)
    raise NoSuchRun(f"there is no run called {word!r}", f"there are {shown}")


def _read(
    place: str, chosen: Chosen, rows: list[dict[str, Any]], timeout_s: float, notes: list[str]
) -> tuple[Run, set[tuple[str, str]]]:
    """What is kept of one of them, and the names of its secrets."""
    history = History(place, notes, chosen=chosen)

    def query(sql: str) -> list[dict[str, Any]]:
        with history.query(sql, timeout_s=timeout_s) as answer:
            return answer.to_pylist()

    own = next(row for row in rows if (row["run"], row["rank"]) == (chosen.run, chosen.rank))
    try:
        environment = query(_ENVIRONMENT)
    except ProbingError:  # of a process that made no step nothing is kept
        environment = []
    run = read_run(
        f"run {chosen.run}",
        query,
        environment,
        command=script_of(shlex.split(own["command"] or "")),
        state="ended" if own["has_ended"] else "running when it was exported",
    )
    return run, {(row["kind"], row["name"]) for row in environment if row["is_secret"]}
