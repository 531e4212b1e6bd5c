"""The job's threads, and the innermost frame of each.

Rules of this file: runs in the agent's thread. The agent's own threads are left out: they are known
by their names, and by what they were started for, as gevent and eventlet take the names away. Both
also give Python's threads other numbers than the interpreter has for them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import NamedTuple

from ....own_files import AGENT
from ....safety.other_stacks import current_stacks
from ....safety.this_thread import number_of_stranger, thread_name
from ...recording.safe_points import AGENT_THREAD_PREFIX
from ...recording.training_thread import is_main, number_of

_THREADING = "/threading.py"
"""A thread's outermost frames are of this file, before the function that it was started for."""


class JobThread(NamedTuple):
    """A thread of the job's.

    Attributes:
        ident: What the interpreter calls it.
        number: The kernel's number; 0 where unknown.
        daemon: None where unknown.
    """

    ident: int
    number: int
    name: str
    is_main: bool
    daemon: bool | None = None
    is_alive: bool = True


class JobThreads(NamedTuple):
    """All of them at one moment.

    Attributes:
        stacks: By `JobThread.ident`, the innermost frame first; none of a thread without Python
            code.
        own: What the agent's threads are called.
    """

    threads: tuple[JobThread, ...]
    stacks: dict[int, list[FrameType]]
    own: frozenset[int]

    @property
    def numbers(self) -> dict[int, int]:
        """The kernel's numbers by the interpreter's."""
        return {thread.ident: thread.number for thread in self.threads if thread.number}

    @property
    def frames(self) -> dict[int, FrameType]:
        """The innermost frames, by `JobThread.ident`."""
        return {ident: stack[0] for ident, stack in self.stacks.items()}


def job_threads() -> JobThreads:
    """The job's threads now."""
    known = threading.enumerate()
    stacks = current_stacks()
    own = {t.ident or 0 for t in known if thread_name(t).startswith(AGENT_THREAD_PREFIX)}
    own |= {ident for ident, stack in stacks.items() if _is_agents(stack)}
    stacks = {ident: stack for ident, stack in stacks.items() if ident not in own}
    here = threading.get_native_id()
    found = [
        JobThread(
            ident=thread.ident or 0,
            number=number_of(thread),
            name=thread_name(thread),
            is_main=is_main(thread),
            daemon=thread.daemon,
            is_alive=thread.is_alive(),
        )
        for thread in known
        if thread.ident not in own and (number_of(thread) != here or is_main(thread))
    ]
    return JobThreads(tuple(_with_strangers(found, stacks)), stacks, frozenset(own))


def _with_strangers(
    known: list[JobThread], stacks: Mapping[int, list[FrameType]]
) -> list[JobThread]:
    """The threads that `threading` knows, and those that only have frames."""
    strangers = sorted(stacks.keys() - {thread.ident for thread in known})
    if len(strangers) == 1 and "greenlet" in sys.modules:
        for place, thread in enumerate(known):
            if thread.is_main and thread.ident not in stacks:  # it is one thread, by two numbers
                renamed = thread._replace(ident=strangers[0], is_alive=True)
                return [*known[:place], renamed, *known[place + 1 :]]
    return known + [
        JobThread(
            ident=ident,
            number=number_of_stranger(ident),
            name=f"thread {ident:#x}",
            is_main=False,
        )
        for ident in strangers
    ]


def _is_agents(stack: list[FrameType]) -> bool:
    """Whether what a thread was started for is the agent's.

    The first frame that is not of `threading` decides: in the job's own thread the agent may stand
    a frame or two further in, such as around a DataLoader's next batch.
    """
    files = [one.f_code.co_filename for one in stack]
    started = next((file for file in reversed(files) if not file.endswith(_THREADING)), "")
    return started.startswith(AGENT)
