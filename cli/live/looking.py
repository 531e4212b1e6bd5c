"""Looks again and again, in a thread of its own, for no more than a small part of a processor.

Rules of this file: a look costs what it costs; how long to wait after it follows from that, so that
all together stay below `SHARE`. What fails is told and tried again. Nobody waits for this thread.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from ...cluster.job.forms import is_address
from ...cluster.job.membership import Member
from ...errors import BadEndpoint, NoSuchFolder, NoSuchProcess, ProbingError
from ...messages import rank_paths
from ...messages.common import Backtrace
from ...messages.frozen import dataclass
from ..reports.following import Following
from ..reports.overview import Overview
from ..reports.rank_grid import GridCell, KnownSteps, RankGrid, grid_of_members
from ..target import FINDING_S, Target

One = TypeVar("One", GridCell, "Member")

SHARE = 0.02
"""The part of a processor's time that a live view may take for itself."""
_OFTEN, _SELDOM = 0.6 * SHARE, 0.35 * SHARE
"""What of it goes to what is read at every look, and to what is looked at whole."""
_LEAST_S = 60.0
"""How long a whole look stands at least, unless a key asks for another."""
_LIMIT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen.

    Attributes:
        at_s: When, in seconds since the epoch.
        every_s: How long it is until the next look.
        grid: Everybody; None where one alone is looked at.
        one: The one that was chosen.
        whole_at_s: When that was last looked at whole; None before it was.
        stack: Where its threads were, and when, in seconds since the epoch.
        notes: What a person should know about how it was found.
        trouble: Why the last look failed, or a part of it.
    """

    at_s: float
    every_s: float = 0.0
    grid: RankGrid | None = None
    one: Overview | None = None
    whole_at_s: float | None = None
    stack: tuple[Backtrace, float] | None = None
    notes: tuple[str, ...] = ()
    trouble: str | None = None


class Looking:
    """What is seen, newer and newer.

    Attributes:
        sight: The last of it.
        is_paused: Whether no more looks are wanted.
    """

    def __init__(self, target: Target, *, every_s: float, tell: Callable[[], None]) -> None:
        """Look at everybody once.

        Args:
            tell: Is called after each look, in the thread that looks.

        Raises:
            ProbingError: There is nobody.
        """
        self.is_paused = False
        self._target, self._every_s, self._tell = target, every_s, tell
        self._poked = threading.Event()
        self._wants_stack = self._wants_whole = False
        self._chosen: str | None = None
        self._following: Following | None = None
        self._known: KnownSteps = {}
        self._is_first = True  # it imports what later ones use
        self._spent_s, self._whole_s, self._whole_at = time.process_time(), 0.0, 0.0
        self.sight = Sight(at_s=time.time(), every_s=every_s)
        self._look_at_all()

    def begin(self) -> None:
        """Go on looking from now on."""
        self._spent_s = time.process_time()
        threading.Thread(target=self._work, name="look", daemon=True).start()

    def choose(self, endpoint: str | None) -> None:
        """Look at this one, too; None: at all of them only."""
        self._chosen = endpoint
        self._wants_stack = False
        self.poke()

    def ask_stack(self) -> None:
        """Look where the threads of the chosen one are."""
        self._wants_stack = True
        self.poke()

    def renew(self) -> None:
        """Look now, also in a pause; at the chosen one whole."""
        self._wants_whole = True
        self.poke()

    def poke(self) -> None:
        """Look at once."""
        self._poked.set()

    def _work(self) -> None:
        while True:
            if not self.is_paused or self._wants_stack or self._wants_whole:
                self._look()
                self._tell()
            self._poked.wait(self.sight.every_s)
            self._poked.clear()

    def _look(self) -> None:
        """One look; what fails is told."""
        try:
            if self._chosen is None:
                self._following = None
                self._look_at_all()
            else:
                self._look_at_one(self._chosen)
        except ProbingError as error:
            self._fail(error.message)
        except Exception as error:  # noqa: BLE001 - the next look may do better
            self._fail(f"{type(error).__name__}: {error}")
        spent_s = time.process_time()
        cost_s = 0.0 if self._is_first else spent_s - self._spent_s
        pause_s = max(self._every_s, cost_s / _OFTEN)
        self._spent_s, self._is_first = spent_s, False
        self.sight = dataclasses.replace(self.sight, every_s=pause_s)

    def _fail(self, why: str) -> None:
        self._wants_stack = self._wants_whole = False
        self.sight = dataclasses.replace(self.sight, trouble=why.rstrip("."))

    def _look_at_all(self) -> None:
        self._wants_whole = False
        from ...cluster.job.members import find_members

        target, before = self._target, self.sight.grid
        limit_s = min(FINDING_S, target.limit_s)
        try:
            membership = find_members(
                target.endpoints, token=target.token, timeout_s=limit_s, states=True
            )
        except ProbingError as error:
            if before is None:
                raise
            grid = without_anybody(before, error)
            if grid is before:
                raise
            self._see(grid=grid)
            return
        grid = grid_of_members(
            membership,
            timeout_s=min(_LIMIT_S, target.limit_s),
            token=target.token,
            known=self._known,
        )
        if before is not None:
            cells = with_gone(before.cells, grid.cells)
            grid = dataclasses.replace(grid, cells=cells)
        self._see(grid=grid, notes=membership.notes)

    def _look_at_one(self, endpoint: str) -> None:
        from ...client.connecting import connect

        following = self._following
        if following is None or following.process.label != endpoint:
            limit_s = min(_LIMIT_S, self._target.limit_s)
            process = connect(endpoint, token=self._target.token, timeout_s=limit_s)
            following = self._following = Following(process)
            self._wants_whole, self._is_first = False, True
            self._see(one=following.look(), stack=None)
            self._tell()
        if self._wants_stack:
            self._wants_stack = False
            stack = following.process.backtrace()
            self._see(one=following.look(), stack=(stack, time.time()))
            self.poke()  # for what comes in its place now
        elif self._wants_whole or following.whole_at_s is None or self._may_look_whole():
            self._look_whole(following)
        else:
            self._see(one=following.look(), stack=self.sight.stack)

    def _may_look_whole(self) -> bool:
        pause_s = max(_LEAST_S, self._whole_s / _SELDOM)
        return time.monotonic() - self._whole_at > pause_s

    def _look_whole(self, following: Following) -> None:
        """A whole look, whose cost is counted apart."""
        self._wants_whole = False
        began_s = time.process_time()
        self._see(one=following.look_whole(), stack=self.sight.stack)
        self._whole_s = 0.0 if self._is_first else time.process_time() - began_s
        self._whole_at = time.monotonic()
        self._spent_s += self._whole_s

    def _see(
        self,
        *,
        grid: RankGrid | None = None,
        one: Overview | None = None,
        stack: tuple[Backtrace, float] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        following = self._following
        self.sight = Sight(
            at_s=time.time(),
            every_s=self.sight.every_s,
            grid=grid or self.sight.grid,
            one=one,
            whole_at_s=following.whole_at_s if following is not None else None,
            stack=stack,
            notes=notes,
        )


def silent_among(found: Iterable[GridCell | Member]) -> set[tuple[str | None, int]]:
    """The servers that have not answered, of those that were looked for."""
    return {
        _server_of(one.endpoint)
        for one in found
        if one.state == "missing" and one.rank is None and is_address(one.endpoint)
    }


def is_over(endpoint: str, silent: Collection[object] | None) -> bool:
    """Whether one that is seen no more has ended, and is not merely out of reach.

    Args:
        silent: The servers that have not answered; None where none has.
    """
    node = rank_paths.split(endpoint)[0]
    return not is_address(node) or (silent is not None and _server_of(node) not in silent)


def _server_of(address: str) -> tuple[str | None, int]:
    """Host and port of an address, however it is written."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def with_gone(
    before: Sequence[GridCell], now: Sequence[GridCell], *, has_answer: bool = True
) -> tuple[GridCell, ...]:
    """Those that are seen, and those that were seen before and are no more: ended, or late.

    Args:
        has_answer: Whether any server has answered.
    """
    silent = silent_among(now) if has_answer else None
    kept, gone = seen_no_more(before, now, lambda cell: (cell.host, cell.pid))
    told = [
        dataclasses.replace(cell, state="dead")
        if cell.state == "dead" or is_over(cell.endpoint, silent)
        else dataclasses.replace(cell, state="not answering", is_late=True)
        for cell in gone
    ]
    return (*kept, *told)


def seen_no_more(
    before: Iterable[One], now: Sequence[One], who: Callable[[One], object]
) -> tuple[list[One], list[One]]:
    """What is shown of those of now, and those of before that are not seen any more.

    None is gone whose rank another process of the job has now, as after a restart; and no rank is
    missing that is among the gone.

    Args:
        who: What a process is known again by.
    """
    seen = {who(one) for one in now}
    ranks = {(one.job, one.rank) for one in now if one.state != "missing"}
    gone = [
        one
        for one in before
        if one.pid is not None
        and who(one) not in seen
        and (one.rank is None or (one.job, one.rank) not in ranks)
    ]
    lost = {(one.job, one.rank) for one in gone if one.rank is not None}
    kept = [one for one in now if one.state != "missing" or (one.job, one.rank) not in lost]
    return kept, gone


def without_anybody(before: RankGrid, error: ProbingError) -> RankGrid:
    """What is seen where nobody was found; as before where the error says nothing of who runs."""
    is_gone = isinstance(error, (NoSuchProcess, NoSuchFolder))
    if isinstance(error, BadEndpoint) and not is_gone:
        return before
    return dataclasses.replace(before, cells=with_gone(before.cells, (), has_answer=is_gone))
