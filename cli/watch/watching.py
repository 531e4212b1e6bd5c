"""A doctor who stays: looks again and again, and tells what begins and what ends.

Rules of this file: a look that fails is told once and tried again; only Ctrl-C, SIGTERM, after
which it looks once more, and the end of all that is watched end it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, cast

from ...diagnosis.doctor.not_looked_at import NOT_THOROUGH
from ...diagnosis.doctor.watching import (
    Event,
    Watch,
    as_json,
    forgets,
    left_to_one_look,
    payload_for,
)
from ...errors import ProbingError
from ...messages.frozen import dataclass
from ..ask.many import membership_of
from ..output import terminal
from .delivery import Delivery, address_in, user_command, webhook
from .ending import Ending
from .standing import StandingFile

if TYPE_CHECKING:
    from ...cluster.job.members import Member, Membership
    from ...diagnosis.doctor.findings import Certainty
    from ...diagnosis.doctor.report import Report
    from ..target import Target

_LOOKS_AFTER = 2
"""A likely finding is told after so many."""
_LAST_S = 20.0
"""How long to go on delivering after the end."""
_LAST_LOOK_S = 8.0
"""What the look after SIGTERM may take: a node server waits for all of it, and then kills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be told, and to whom.

    Attributes:
        least: The least certainty.
        goes_on: Whether to wait for new processes once all have ended.
        webhooks: Addresses.
        variables: Variables of the environment that have an address each.
        commands: Commands of the shell.
        standing: The file that has what stands, if any.
    """

    every_s: float
    least: str
    goes_on: bool
    is_json: bool
    webhooks: tuple[str, ...]
    variables: tuple[str, ...]
    commands: tuple[str, ...]
    standing: str = ""


class Seen:
    """Whom a watch has seen run: one that has ended since is looked at twice more.

    Attributes:
        notes: What was noticed at the last look.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self._looks: dict[str, int] = {}
        self.notes: tuple[str, ...] = ()

    @property
    def endpoints(self) -> Collection[str]:
        """Those that are to be looked at, whether they run or have ended."""
        return self._looks.keys()

    def members_of(self, target: Target) -> tuple[Member, ...]:
        """Whom to look at now; what is noticed is told, unless it was at the look before."""
        found = membership_of(target, still=self.endpoints, told=self.notes)
        self.look_at(found)
        return found.members

    def look_at(self, found: Membership) -> None:
        """Count a look: what runs is looked at twice after its end."""
        living = {member.endpoint: _LOOKS_AFTER for member in found.members if member.is_alive}
        self.notes = found.notes
        self._looks = {e: left - 1 for e, left in self._looks.items() if left > 1} | living


def watch_and_tell(look: Callable[[float], Report], wish: Wish) -> bool:
    """Look until there is nothing left to look at.

    Args:
        look: Takes as many seconds as it is given at most.

    Returns:
        Whether anything was told.

    Raises:
        UsageError: A webhook is no address, or a variable is not set.
        ProbingError: Nothing was there at the first look.
    """
    terminal.go_live()
    addresses = [*wish.webhooks, *(address_in(os.environ, name) for name in wish.variables)]
    receivers = [webhook(url, payload_for, forgets=forgets(url)) for url in addresses]
    receivers += [user_command(line, as_json) for line in wish.commands]
    telling = _Telling(wish, Delivery(receivers))
    with Ending() as ending:
        try:
            for report in _reports(look, wish, ending):
                telling.tell(report)
                if report.has_ended and not wish.goes_on:
                    telling.tell(report)  # what has only begun is told now or never
                    terminal.note(f"{report.about} has ended: nothing is left to watch")
                    break
        finally:
            telling.delivery.close(_LAST_S)
    return telling.has_told


def _reports(look: Callable[[float], Report], wish: Wish, ending: Ending) -> Iterator[Report]:
    """One report after the other; a look that fails is made again.

    Raises:
        ProbingError: The first one fails, and it is to end with what is watched.
    """
    trouble = "" if wish.goes_on else None
    is_last = False
    while not is_last:
        is_last, began = ending.is_asked, time.monotonic()
        try:
            yield look(_LAST_LOOK_S if is_last else math.inf)
            trouble = ""
        except ProbingError as error:
            if trouble is None:
                raise
            if error.message != trouble:
                terminal.note(f"{error.message.rstrip('.')}; it is asked again")
            trouble = error.message
        if not is_last:
            ending.wait(wish.every_s - (time.monotonic() - began))


class _Telling:
    """Tells what has changed, on the terminal and to the receivers.

    Attributes:
        has_told: Whether there was anything.
    """

    def __init__(self, wish: Wish, delivery: Delivery) -> None:
        self._wish, self.delivery = wish, delivery
        self._watch = Watch(cast("Certainty", wish.least), every_s=wish.every_s)
        self._standing = StandingFile(wish.standing, wish.every_s)
        self._left_out: dict[str, None] = {}
        self.has_told = False

    def tell(self, report: Report) -> None:
        """Tell what has begun and ended since the report before."""
        now_s = time.time()
        self._tell_left_out(report)
        self.delivery.remind(self._watch.standing(now_s))
        events = self._watch.changes(
            report.findings, missed=report.missed_of, about=report.about, now_s=now_s
        )
        for event in events:
            _show(event, self._wish)
            self.delivery.send(event)
            self.has_told = True
        self._standing.write(self._watch.standing(now_s), now_s)

    def _tell_left_out(self, report: Report) -> None:
        """Say once which rules are not judged here: their silence is no sign of health."""
        new = dict.fromkeys(n for n in left_to_one_look(report) if n not in self._left_out)
        self._left_out |= new
        if new:
            terminal.note(
                f"not looked at: {', '.join(new)} ({NOT_THOROUGH}): `doctor` without --watch does"
            )


def _show(event: Event, wish: Wish) -> None:
    """One line on the terminal."""
    if wish.is_json:
        terminal.write_json_line(as_json(event))
    else:
        at = time.strftime("%H:%M:%S", time.localtime(event.time_s))
        finding = event.finding
        word = finding.certainty if event.kind == "begun" else "over"
        next_ = f"  ({finding.next})" if event.kind == "begun" else ""
        terminal.write(f"{at}  {word}: {finding.summary}{next_}")
    terminal.flush()
