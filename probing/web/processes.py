"""Which processes there are: looked at when the page asks, and no more often than is cheap.

Rules of this file: what `probing top` sees is what the page sees, by the same functions. A look
runs in a thread, one at a time; who asks meanwhile gets the one before. What was seen once can be
asked for as long as the server runs: a process that has ended is asked for its record.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..api.process import Process, connect
from ..cli.live.looking import (
    SHARE,
    is_over,
    seen_no_more,
    silent_among,
    with_gone,
    without_anybody,
)
from ..cli.reports.rank_grid import COUNTED, GridCell, KnownSteps, RankGrid, grid_of_members
from ..client.recent_steps import SELECT_STEPS
from ..cluster.job.members import find_members
from ..cluster.job.membership import Member
from ..errors import NoSuchProcess, ProbingError
from ..messages.frozen import dataclass
from .ended import Ended, command_of, ended_member

_EVERY_S = 1.0
_FINDING_S, _LIMIT_S = 5.0, 3.0
_MOST_GONE = 200
"""So many that have ended stay in the list, the newest: a page may be open over very many runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom the page is about.

    Attributes:
        endpoints: As they are typed on the command line.
        token: Of TCP requests to the agents and node servers behind them.
    """

    endpoints: tuple[str, ...]
    token: str | None
    timeout_s: float


class Processes:
    """All that were seen."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._looking = threading.Lock()
        self._grid: RankGrid | None = None
        self._known: KnownSteps = {}
        self._asked: dict[str, Process] = {}
        self._commands: dict[str, str] = {}
        self._ended: Sequence[Mapping[str, Any]] = ()
        self._records = Ended() if target.endpoints == ("all",) else None
        self._members: Sequence[Member] = ()
        self._notes: Sequence[str] = ()
        self._trouble: str | None = None
        self._at_s, self._next_s, self._is_first = 0.0, 0.0, True

    def look(self) -> None:
        """Look at all of them.

        Raises:
            ProbingError: There is nobody.
        """
        with self._looking:
            self._look()

    def seen(self) -> dict[str, Any]:
        """What was seen last, after a new look if one is due, for the page."""
        if time.monotonic() >= self._next_s and self._looking.acquire(blocking=False):
            try:
                self._look()
                self._trouble = None
            except ProbingError as error:
                self._trouble = error.message
            finally:
                self._looking.release()
        grid, shown = self._grid, self._shown()
        return {
            "label": " ".join(self.target.endpoints) if grid is None else grid.label,
            "expected": None if grid is None else grid.expected,
            "at_s": self._at_s,
            "notes": list(self._notes),
            "trouble": self._trouble,
            "sql": f"{SELECT_STEPS}{COUNTED}",
            "processes": [] if grid is None else [self._entry(cell) for cell in grid.cells],
            "ended": [one for one in self._ended if one["endpoint"] not in shown],
        }

    def process(self, endpoint: str) -> Process:
        """One of those that were seen; no other can be asked.

        Raises:
            NoSuchProcess: It was not seen.
        """
        known = self._asked.get(endpoint)
        if known is not None:
            return known
        if endpoint not in self._shown() | {one["endpoint"] for one in self._ended}:
            raise NoSuchProcess(endpoint)
        target = self.target
        found = connect(endpoint, token=target.token, timeout_s=target.timeout_s)
        self._asked[endpoint] = found
        return found

    def _shown(self) -> set[str]:
        """How those are asked that are in the grid."""
        return set() if self._grid is None else {cell.endpoint for cell in self._grid.cells}

    def job_of(self, endpoint: str) -> Sequence[Member]:
        """All that were seen of the job of one of them; itself where it has none.

        One of which the job has another process now is of an earlier run: itself as well.

        Raises:
            NoSuchProcess: It was not seen.
        """
        own = next((one for one in self._members if one.endpoint == endpoint), None)
        is_there = own is not None
        if own is None and any(one["endpoint"] == endpoint for one in self._ended):
            own = ended_member(endpoint)
        if own is None:
            raise NoSuchProcess(endpoint)
        ranks = [m for m in self._members if m.job == own.job and m.rank is not None]
        if own.rank is None:
            return [own]
        if is_there:
            return ranks
        is_earlier = any(m.rank == own.rank and m.state == "seen" for m in ranks)
        return [own] if is_earlier else [own, *(m for m in ranks if m.rank != own.rank)]

    def _look(self) -> None:
        """Look, and say when the next look is due by what this one has cost."""
        began = time.thread_time()
        try:
            if self._records is not None:
                self._ended = self._records.look()
            self._grid = self._grid_now()
            self._at_s = time.time()
        finally:
            cost_s = 0.0 if self._is_first else time.thread_time() - began  # it imports much
            self._is_first = False
            self._next_s = time.monotonic() + max(_EVERY_S, cost_s / SHARE)

    def _grid_now(self) -> RankGrid:
        target, before = self.target, self._grid
        try:
            members = find_members(
                target.endpoints, token=target.token, timeout_s=_FINDING_S, states=True
            )
        except ProbingError as error:
            if before is not None:
                self._grid = without_anybody(before, error)
            raise
        self._members, self._notes = _with_ended(self._members, members.members), members.notes
        grid = grid_of_members(members, timeout_s=_LIMIT_S, token=target.token, known=self._known)
        if before is None:
            return grid
        return dataclasses.replace(grid, cells=with_gone(before.cells, grid.cells))

    def _entry(self, cell: GridCell) -> dict[str, Any]:
        """One process, with the durations and losses of its last steps, oldest first."""
        rows: Sequence[Mapping[str, Any]] = self._known.get(cell.endpoint, ())
        ended = [row for row in reversed(rows) if row["duration"] is not None]
        is_told = not cell.is_late and cell.state != "dead"  # the age of then grows no further
        if cell.endpoint not in self._commands:
            self._commands[cell.endpoint] = command_of(cell.endpoint)
        return {
            **dataclasses.asdict(cell),
            "command": self._commands[cell.endpoint],
            "age_s": rows[0]["age_s"] if rows and is_told else None,
            "durations": [row["duration"] for row in ended],
            "losses": [row["loss"] for row in ended],
        }


def _with_ended(before: Sequence[Member], now: Sequence[Member]) -> tuple[Member, ...]:
    """Those of now, and those of before that are not seen any more: their records answer."""
    silent = silent_among(now)
    kept, gone = seen_no_more(before, now, lambda member: member.endpoint)
    ended = [
        dataclasses.replace(member, is_alive=False) if is_over(member.endpoint, silent) else member
        for member in gone[:_MOST_GONE]
    ]
    return (*kept, *ended)
