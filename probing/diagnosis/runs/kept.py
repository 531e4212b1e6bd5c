"""Finds the runs of a history that are meant, and puts two beside each other, as `probing diff`.

Rules of this file: finds what is meant and reads it; nothing is judged here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from ...errors import NoSuchRun, ProbingError
from ...history.query import History
from ...history.scanning.chosen import EVERY_RANK, Chosen, days_of
from ...messages.frozen import dataclass
from ...sql.quoting import text_literal
from .comparison import RunComparison, compare_runs
from .reading import script_of
from .record import Name, Row, Run, read_run

_PROCESSES = (
    "FROM probing.processes WHERE {} ORDER BY started_ns DESC, run, project, rank NULLS FIRST"
)
_ENVIRONMENT = "SELECT kind, name, value, is_secret, fingerprint FROM python.environment"
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """One run of a history, to be read.

    Attributes:
        place: The folder.
        name: What it is called.
        asked: That, or PROJECT/NAME where it was asked for so: another project may have the name.
        processes: The rows of probing.processes of its ranks, in their order.
        timeout_s: What each question may take.
        notes: Gets sentences about what was left out.
    """

    place: str
    name: str
    asked: str
    processes: tuple[Row, ...]
    timeout_s: float
    notes: list[str] = field(repr=False)

    @property
    def ranks(self) -> set[int | None]:
        """Those that are kept."""
        return {row["rank"] for row in self.processes}

    def process(self, rank: int | None) -> Row:
        """The row of a rank.

        Raises:
            NoSuchRun: It has none.
        """
        found = next((row for row in self.processes if row["rank"] == rank), None)
        if found is None:
            raise NoSuchRun(f"{self.name} has no rank {rank}", "probing.processes has those it has")
        return found

    def history(self, rank: int | None = EVERY_RANK) -> History:
        """The rows of one rank, or of all; of one process those of before its rank, too."""
        row = self.processes[0]
        rank = rank if len(self.processes) > 1 else EVERY_RANK
        chosen = Chosen(
            self.name, row["project"], row["job"], rank, days_of(self.name, self.processes)
        )
        return History(self.place, self.notes, chosen=chosen, timeout_s=self.timeout_s)

    def query(self, sql: str, rank: int | None = EVERY_RANK) -> list[dict[str, Any]]:
        """Ask the tables of one rank, or of all.

        Raises:
            ProbingError: There is no answer.
        """
        with self.history(rank).query(sql, timeout_s=self.timeout_s) as answer:
            return answer.to_pylist()

    def read(self, rank: int | None) -> tuple[Run, frozenset[Name]]:
        """What is kept of a rank, and the names of its secrets.

        Raises:
            ProbingError: It cannot be read.
        """
        own = self.process(rank)
        history = self.history(rank)

        def query(sql: str) -> list[dict[str, Any]]:
            with history.query(sql, timeout_s=self.timeout_s) as answer:
                return answer.to_pylist()

        try:
            environment = query(_ENVIRONMENT)
        except ProbingError:  # of a process that made no step nothing is kept
            environment = []
        run = read_run(
            f"run {self.asked}",
            query,
            environment,
            command=script_of(shlex.split(own["command"] or "")),
            state="ended" if own["has_ended"] else "running when it was exported",
        )
        secrets = {(row["kind"], row["name"]) for row in environment if row["is_secret"]}
        return run, frozenset(secrets)


def find_kept(
    place: str, words: tuple[str, ...], *, timeout_s: float, notes: list[str]
) -> tuple[KeptRun, ...]:
    """The runs that are meant, in their order.

    Args:
        words: Their names, or parts of these that only they have; PROJECT/NAME where another
            project has a run of that name.
        timeout_s: What each question may take.
        notes: Gets sentences about what was left out.

    Raises:
        NoSuchRun: There is none of a name, or several.
        ProbingError: The history cannot be read.
    """
    rows = _processes(place, words, timeout_s, notes)
    return tuple(
        KeptRun(
            place=place,
            name=name,
            asked=word if word == f"{project}/{name}" else name,
            processes=_ranked(row for row in rows if _named(row) == (project, name)),
            timeout_s=timeout_s,
            notes=notes,
        )
        for word, (project, name) in [(word, _meant(word, rows)) for word in words]
    )


def _processes(
    place: str, words: tuple[str, ...], timeout_s: float, notes: list[str]
) -> list[dict[str, Any]]:
    """Those of all runs that may be meant, the newest first; where a word is of none, of all."""

    def ask(condition: str) -> list[dict[str, Any]]:
        sql = _PROCESSES.format(condition)
        history = History(place, notes, timeout_s=timeout_s)
        with history.query(sql, timeout_s=timeout_s) as answer:
            return answer.to_pylist()

    conditions = (
        f"contains(run, {word}) OR project || '/' || run = {word}"
        for word in map(text_literal, words)
    )
    rows = ask(" OR ".join(conditions))
    is_found = all(any(_fits(word, _named(row)) for row in rows) for word in words)
    return rows if is_found else ask("true")


def compare_kept(
    before: KeptRun, after: KeptRun, *, rank: int | None
) -> tuple[RunComparison, tuple[str, str]]:
    """Compare two runs, of several ranks the same one.

    Args:
        rank: Which one; None for the lowest that both have.

    Returns:
        What differs, and what they are called.

    Raises:
        NoSuchRun: One of them has no such rank.
        ProbingError: The history cannot be read.
    """
    common = sorted(before.ranks & after.ranks, key=lambda one: -1 if one is None else one)
    if rank is not None:
        for run in (before, after):
            run.process(rank)
    elif not common:
        raise NoSuchRun(f"{before.asked} and {after.asked} have no rank in common", "")
    which = common[0] if rank is None else rank
    first, second = before.read(which), after.read(which)
    return compare_runs(first[0], second[0], first[1] | second[1]), (before.asked, after.asked)


def _ranked(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: -1 if row["rank"] is None else row["rank"]))


def _named(row: Row) -> tuple[str, str]:
    """The project and the run of a process: two projects may begin a job in the same second."""
    return str(row["project"]), str(row["run"])


def _fits(word: str, named: tuple[str, str]) -> bool:
    return word in named[1] or word == "/".join(named)


def _meant(word: str, rows: list[dict[str, Any]]) -> tuple[str, str]:
    runs = list(dict.fromkeys(map(_named, rows)))
    found = [one for one in runs if word in {one[1], "/".join(one)}]
    found = found or [one for one in runs if _fits(word, one)]
    if len(found) == 1:
        return found[0]
    names = [name for _, name in runs]
    shown = ", ".join(
        "/".join(one) if names.count(one[1]) > 1 else one[1] for one in (found or runs)[:_MOST]
    )
    more = len(found or runs) - _MOST
    shown += f" and {more:,} more" if more > 0 else ""
    if found:
        raise NoSuchRun(f"{word!r} is part of the names of {len(found)} runs", shown)
    raise NoSuchRun(f"there is no run called {word!r}", f"there are {shown}")
