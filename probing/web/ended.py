"""The processes of this machine that have ended, and what each process is.

Rules of this file: reads files alone, and those of a process that has ended once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..arguments import shown_command
from ..client.listing import summarize
from ..cluster.job.membership import Member, member_of
from ..postmortem.endings import ending_of
from ..rundir.folders import folder_at, from_env
from ..rundir.pruning import overdue

_MOST = 20
_TOLD_AT_ONCE = 5
"""For so many a look finds out how they have ended; none of those that it sees for the first time,
so that the first view of the page does not wait for it."""


class Ended:
    """The newest that have ended, as far as their records are there."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self._told: set[str] = set()

    def look(self) -> tuple[dict[str, Any], ...]:
        """All of them, newest first, as entries of the page's list."""
        ended = [one for one in from_env().folders() if not one.is_alive()][:_MOST]
        left_out = overdue(ended)
        folders = [one for one in ended if one not in left_out]
        known, self._known = self._known, {}
        for path in [path for path in known if path not in self._told][:_TOLD_AT_ONCE]:
            self._told.add(path)
            known[path] = _with_ending(known[path])
        for folder in folders:
            path = str(folder.path)
            entry = known.get(path) or _entry(path)
            if entry is not None:
                self._known[path] = entry
        return tuple(self._known.values())


def _entry(path: str) -> dict[str, Any] | None:
    """What is known of one; None where it runs elsewhere, or has no card."""
    folder = folder_at(Path(path))
    card = folder.read_card() if folder is not None else None
    if folder is None or card is None:
        return None
    seen = summarize(folder)
    if seen.state != "dead":
        return None
    name = member_of(card, path, is_alive=False).name
    return {
        "endpoint": path, "name": name, "rank": card.rank, "job": card.job,
        "host": card.host, "pid": card.pid, "state": "dead", "step": seen.step,
        "command": seen.command, "began_s": card.started_ns / 1e9, "problems": list(seen.problems),
    }  # fmt: skip


def ended_member(path: str) -> Member | None:
    """One of them as a member of its job; None where its card is gone."""
    folder = folder_at(Path(path))
    card = folder.read_card() if folder is not None else None
    return None if card is None else member_of(card, path, is_alive=False)


def _with_ending(entry: dict[str, Any]) -> dict[str, Any]:
    """The same with how it has ended before what else is to be told of it."""
    folder = folder_at(Path(entry["endpoint"]))
    ending = ending_of(folder, ()) if folder is not None else None
    if ending is None:
        return entry
    told = ending.certain[0]
    rest = [one for one in entry["problems"] if one.casefold().rstrip(".") not in told.casefold()]
    return {**entry, "problems": [told, *rest]}


def command_of(endpoint: str) -> str:
    """How a process of this machine was started; empty where that is not known here."""
    folder = folder_at(Path(endpoint)) if endpoint.startswith("/") else None
    card = folder.read_card() if folder is not None else None
    return "" if card is None else shown_command(card.command)
