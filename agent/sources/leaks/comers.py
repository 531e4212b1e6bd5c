"""What came in the watched steps and stayed, beside storages: open descriptors, threads.

Rules of this file: runs in the training thread, at the ends of steps; opens nothing and keeps no
object. What was open only for a moment, such as the connection of whoever asks, is not there at the
end, and counts for nothing.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from ....safety.this_thread import thread_name
from ...recording.safe_points import AGENT_THREAD_PREFIX
from .references.holders import Holder

_MOST_DESCRIPTORS = 4096
_NUMBER = re.compile(r"\d+")
_FOLDER = "/proc/self/fd"


class Comers:
    """Things of one kind, by the step in which they came.

    Attributes:
        before: The step that had ended as they were first looked for; None before that.
        births: Those that are there, by the step after which they were first there.
    """

    def __init__(self) -> None:
        self.before: int | None = None
        self.births: dict[Hashable, int] = {}

    def note(self, present: Iterable[Hashable], step: int) -> None:
        """These are there as a step has ended."""
        self.before = step if self.before is None else self.before
        self.births = {key: self.births.get(key, step) for key in present}

    def stayed(self) -> dict[Hashable, int]:
        """Those that came in the watched steps."""
        return {key: step for key, step in self.births.items() if step != self.before}


class Stayed(NamedTuple):
    """What came in several of the watched steps and is still there.

    Attributes:
        name: What it is: ``descriptors`` or ``threads``.
        steps: The step in which each came.
        holder: What is known of the newest, or of most.
    """

    name: str
    steps: tuple[int, ...]
    holder: Holder


def descriptors_now() -> list[tuple[int, str]]:
    """The open descriptors, each with what it leads to; none where there are too many."""
    try:
        names = os.listdir(_FOLDER)
    except OSError:
        return []
    found: list[tuple[int, str]] = []
    for name in names if len(names) <= _MOST_DESCRIPTORS else ():
        try:
            found.append((int(name), os.readlink(f"{_FOLDER}/{name}")))
        except OSError:  # that of the listing itself
            continue
    return found


def threads_now() -> list[int]:
    """The threads of Python but the agent's, by number."""
    return [
        thread.ident
        for thread in threading.enumerate()
        if thread.ident is not None and not thread_name(thread).startswith(AGENT_THREAD_PREFIX)
    ]


def stayed_descriptors(comers: Comers) -> Stayed:
    """What most of the new descriptors lead to; digits may be any."""
    found = comers.stayed()
    targets = Counter(_NUMBER.sub("*", key[1]) for key in found if isinstance(key, tuple))
    commonest = targets.most_common(1)
    path = commonest[0][0] if commonest else None
    place = f"{commonest[0][1]} of {len(found)}" if commonest else None
    holder = Holder("unknown", path=path, place=place)
    return Stayed("descriptors", tuple(found.values()), holder)


def stayed_threads(comers: Comers) -> Stayed:
    """The name of the newest thread, and where the function begins that it runs."""
    found = comers.stayed()
    newest = max(found, key=lambda key: found[key], default=None)
    thread = next((one for one in threading.enumerate() if one.ident == newest), None)
    holder = Holder("unknown") if thread is None else _runs(thread)
    return Stayed("threads", tuple(found.values()), holder)


def _runs(thread: threading.Thread) -> Holder:
    """A thread, and the function that it runs: its target, or its class's own `run`."""
    target = getattr(thread, "_target", None)
    function = getattr(target, "__func__", target)
    if function is None and type(thread) is not threading.Thread:
        function = type(thread).run
    code = getattr(function, "__code__", None)
    return Holder(
        "unknown",
        path=thread_name(thread),
        place=getattr(function, "__qualname__", None),
        file=getattr(code, "co_filename", None),
        line_of=getattr(code, "co_firstlineno", None),
    )
