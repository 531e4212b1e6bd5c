"""Keeps account of what an action changes, so that it can be taken back.

Rules of this file: runs in the training thread. A value is put where it was found: into the tensor
where it is one, since others may hold that tensor.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ....messages.about.act import Change


class Hanging(Protocol):
    """What an action has hung on the training."""

    @property
    def hangs(self) -> bool:
        """Whether anything of it is there still."""


class Applied(NamedTuple):
    """What came of an action.

    Attributes:
        undo: Takes it back, in the training thread and between two steps; None where that has no
            meaning.
        kind: What it is the one of; an older one of that kind has been replaced. None for an
            action that is over.
        hooks: What is in force by it; None where nothing is.
        optimizers: Those that it is on; None where it is not a matter of them.
    """

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    undo: Callable[[], Undone] | None = None
    kind: str | None = None
    hooks: Hanging | None = None
    optimizers: weakref.WeakSet[Any] | None = None


class Undone(NamedTuple):
    """What came of taking an action back.

    Attributes:
        changes: What is as it was, or as it would be by now.
        overwritten: What somebody has overwritten since: what the action had made of it, and what
            it is; it was left alone.
        notes: What else there is to say.
    """

    changes: tuple[Change, ...] = ()
    overwritten: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()


class _Entry(NamedTuple):
    """A place, what it held, and what it holds.

    Attributes:
        holder: Gives who has the place; None once that is gone.
    """

    what: str
    group: int | None
    holder: Callable[[], Any]
    key: Any
    before: float
    after: float


class _Looked(NamedTuple):
    """A place as an undo finds it.

    Attributes:
        is_ours: Whether it still carries the change.
    """

    entry: _Entry
    there: Any
    now: float
    is_ours: bool


class Ledger:
    """Numbers that are changed, in the order in which they were planned.

    One tensor may be in many places, as a rate that all groups share: so all are read before the
    first is written, and that tensor is changed once.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._looked: list[_Looked] = []

    def plan(
        self,
        what: str,
        holder: Callable[[], Any],
        key: object,
        value: float,
        *,
        group: int | None = None,
    ) -> None:
        """Have a number get another value.

        Args:
            what: What it is called; nothing for one that follows from others, and is not told.
            holder: Gives a dict, a list, or an object for an attribute, and None once that is gone:
                what is kept for an undo must not keep an optimizer alive.
            group: The parameter group that it is of.
        """
        before = number_of(read(holder(), key))
        self._entries.append(_Entry(what, group, holder, key, before, value))

    def carry_out(self) -> None:
        """Write what was planned."""
        there = [(e, holder) for e in self._entries if (holder := e.holder()) is not None]
        for entry, holder in there:
            write(holder, entry.key, entry.after)
        self._entries = [
            entry._replace(after=number_of(read(holder, entry.key))) for entry, holder in there
        ]

    def roll_back(self) -> None:
        """Everything as it was, because not everything could be changed."""
        while self._entries:
            entry = self._entries.pop()
            if (there := entry.holder()) is not None:
                write(there, entry.key, entry.before)

    def changes(self) -> tuple[Change, ...]:
        """From what to what."""
        return _told(self._entries)

    def look(self, carries: Callable[[Any, Any, bool], bool]) -> None:
        """See what there is now, before anything is taken back: in this ledger or in another.

        Args:
            carries: Whether a place, by its holder and key, still carries the change, which may
                have moved on as it would; its last argument says whether it has moved at all. One
                that does not has been overwritten, and is somebody else's.
        """
        found = [
            (entry, there, number_of(read(there, entry.key)))
            for entry in self._entries
            if (there := entry.holder()) is not None
        ]
        self._looked = [
            _Looked(entry, there, now, carries(there, entry.key, now != entry.after))
            for entry, there, now in found
        ]

    def undo(self, factor: Callable[[float, float], float]) -> Undone:
        """Take back what carried the change as it was looked at.

        Args:
            factor: What a number that has moved on since is multiplied by, made of what it was
                before the action and right after it.
        """
        undone, left = [], []
        looked, self._looked = self._looked, []
        for entry, there, now, is_ours in looked:
            if is_ours:
                is_same = now == entry.after
                value = entry.before if is_same else now * factor(entry.before, entry.after)
                write(there, entry.key, value)
                undone.append(entry._replace(before=now, after=value))
            else:
                left.append(entry._replace(before=entry.after, after=now))
        self._entries.clear()
        return Undone(_told(undone), _told(left))


def _told(entries: list[_Entry]) -> tuple[Change, ...]:
    """What has changed; of groups that changed alike, once."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        if entry.what:
            key = (entry.what, f"{entry.before:g}", f"{entry.after:g}")
            groups.setdefault(key, []).extend([] if entry.group is None else [str(entry.group)])
    return tuple(
        [
            Change(what=f"{what}{_of_groups(numbers)}", before=before, after=after)
            for (what, before, after), numbers in groups.items()
        ]
    )


def _of_groups(numbers: list[str]) -> str:
    """Which parameter groups, in words."""
    if not numbers:
        return ""
    return f" of group{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def read(holder: Any, key: Any) -> Any:
    """What is in a place."""
    return holder[key] if isinstance(holder, (dict, list)) else getattr(holder, key)


def write(holder: Any, key: Any, value: float) -> None:
    """Put a number into a place."""
    there = read(holder, key)
    if isinstance(there, sys.modules["torch"].Tensor):
        with sys.modules["torch"].no_grad():
            there.fill_(value)
    elif isinstance(holder, (dict, list)):
        holder[key] = value
    else:
        setattr(holder, key, value)


def is_number(value: object) -> bool:
    """Whether it is a number, or a tensor of one."""
    is_tensor = isinstance(value, sys.modules["torch"].Tensor) and value.numel() == 1
    return isinstance(value, (int, float)) or is_tensor


def number_of(value: Any) -> float:
    """A number, or that in a tensor of one element."""
    return float(value.item() if isinstance(value, sys.modules["torch"].Tensor) else value)
