"""What the processes do that a rank waits for: those that it has started, or who has a file's lock.

Rules of this file: looks from outside, at a few of them, each for a limited time; nothing here asks
an agent.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ....arguments import shown_command
from ....errors import ProbingError
from ....linux import process
from ....linux.kernel_files import read_text
from ....messages.common import Backtrace
from ....messages.frozen import dataclass
from ....own_files import is_our_command
from ....reach import ladder
from ....stacks import waits
from ....stacks.thread_waits import own_line
from ....stacks.work_done import children_of
from .doings import awaited_worker, training_thread, worker_of
from .other_ends import read_from, writers

_AWAITS = re.compile(
    r"child process|worker process|process pool|between processes|another process to|for a pool"
    r"|waiting for a future"
)
"""What a thread waits for that a process may be to bring."""
_CHILD = "child process"
_FILE_LOCK = "waiting for a file lock"
_DEEPEST = 2
_HELPERS = ("resource_tracker", "semaphore_tracker")
_MOST = 3
_MOST_COMMAND = 60
_AGAIN_S = 0.005
NOBODY_SENDS = "no other process is seen to have the other end of its"
"""How it begins that only a thread's own process could write what it waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The processes that one waits for.

    Attributes:
        worker: What the DataLoader's worker does that it waits for; None where that is not known.
        others: What other processes do, a clause each.
        lock_pid: The process that has the lock of a file that it waits for.
    """

    worker: str | None = None
    others: tuple[str, ...] = ()
    lock_pid: int | None = None


class Sender(NamedTuple):
    """A process that may bring what a thread waits for.

    Attributes:
        pid: None for what is said of all of them.
        words: What it does, a clause that names it.
    """

    pid: int | None
    words: str


def others_of(trace: Backtrace) -> Others:
    """What the processes do that a process of this machine waits for."""
    holder = _awaited_holder(trace)
    if holder is not None:
        return Others(others=(f"the lock is held by {_named(holder)}",), lock_pid=holder)
    return Others(worker=_worker_does(trace), others=_awaited_processes(trace))


def awaits_others(trace: Backtrace) -> bool:
    """Whether it waits for another process, as far as its stack tells."""
    words = _words(trace)
    is_for_others = words.startswith(_FILE_LOCK) or _AWAITS.search(words) is not None
    return is_for_others or awaited_worker(trace) is not None


def senders_to(pid: int, thread_id: int, *, within_s: float = 0.0) -> tuple[Sender, ...]:
    """The first processes that may bring what a thread waits for.

    Those are who has the other end of the pipe or socket that it reads from, where that is known;
    else all that its process has started.

    Args:
        within_s: For how long it is looked again and again whether it reads from one.
    """
    until, end = time.monotonic() + within_s, read_from(pid, thread_id)
    while end is None and time.monotonic() < until:
        time.sleep(_AGAIN_S)
        end = read_from(pid, thread_id)
    own = list(_job_children(pid))
    at_end = writers(end, but=pid) if end is not None else None
    kind = (end or "").partition(":")[0]
    if at_end is None:
        return _senders(own, own, "")
    found = [one for one in at_end if _is_jobs(one)]
    if found:
        return _senders(found, own, f", at the other end of its {kind},")
    return (Sender(None, f"{NOBODY_SENDS} {kind}"), *_senders(own, own, ""))


def _senders(pids: list[int], own: Collection[int], where: str) -> tuple[Sender, ...]:
    """What the first of some processes do.

    Args:
        own: Those that the process has started which waits.
        where: What is said of where they are.
    """
    found = [
        Sender(pid, f"{'its ' if pid in own else ''}{_named(pid)}{where} {_does(pid)}")
        for pid in pids[:_MOST]
    ]
    more = len(pids) - len(found)
    whose = " there" if where else " of its own"
    return (*found, *([Sender(None, f"and {more} more processes{whose}")] if more > 0 else []))


def _words(trace: Backtrace) -> str:
    """What the thread whose work counts is waiting for."""
    thread = worker_of(trace)
    return (thread.waiting if thread is not None else None) or ""


def _awaited_holder(trace: Backtrace) -> int | None:
    """The process that has the lock of a file that one of this machine waits for."""
    thread = training_thread(trace.threads)
    words = (thread.waiting if thread is not None else None) or ""
    if not words.startswith(_FILE_LOCK):
        return None
    return _lock_holder(read_text("/proc/locks"), trace.pid)


def _awaited_processes(trace: Backtrace) -> tuple[str, ...]:
    """A sentence on each of the first processes that a process of this machine waits for."""
    thread = worker_of(trace)
    if thread is None or not _AWAITS.search(_words(trace)):
        return ()
    return tuple([sender.words for sender in senders_to(trace.pid, thread.thread_id or trace.pid)])


def _lock_holder(locks: str, waiter: int) -> int | None:
    """The process that has the lock of a file, by the kernel's list of all."""
    holders: dict[str, int] = {}
    for line in locks.splitlines():
        number, *words = line.split()
        pids = [int(word) for word in words[3:5] if word.isdecimal()]
        if not pids:
            continue
        if words[0] != "->":
            holders[number] = pids[0]
        elif pids[0] == waiter:
            return holders.get(number)
    return None


def _worker_does(trace: Backtrace) -> str | None:
    """What the worker of a DataLoader does that a process of this machine waits for."""
    pid = awaited_worker(trace)
    return None if pid is None else _does(pid)


def _job_children(pid: int) -> Iterator[int]:
    """Those that are the job's; who asks may have been started by it, too."""
    yield from filter(_is_jobs, sorted(children_of(pid)))


def _is_jobs(pid: int) -> bool:
    """Whether a process is the job's, and neither one of ours nor a helper of Python's."""
    words = process.command(pid)
    is_helper = any(name in word for word in words for name in _HELPERS)
    return pid != os.getpid() and not (is_helper or is_our_command(words))


def _named(pid: int) -> str:
    """What people call a process."""
    first, *rest = process.command(pid) or ("",)
    text = shown_command((os.path.basename(first), *rest))
    shown = text if len(text) <= _MOST_COMMAND else f"{text[: _MOST_COMMAND - 3]}..."
    return f"process {pid}" + (f" ({shown})" if text else "")


def _does(pid: int, *, depth: int = 0) -> str:
    """What a process does and where, in words that fit behind its name."""
    started = process.start_time(pid)
    if started is None:
        return "has ended"
    notes: list[str] = []
    if not process.is_python(pid):
        fact = process.threads(pid, {pid}).get(pid)
        words = waits.describe(waits.Sight(frames=(), facts=fact)) if fact is not None else None
        awaited = _job_children(pid) if depth < _DEEPEST and _CHILD in (words or "") else iter(())
        child = next(awaited, None)
        if child is not None:
            return f"is {words}: {_named(child)}, which {_does(child, depth=depth + 1)}"
        return f"is {words or 'there'}"
    try:
        thread = training_thread(ladder.backtrace_of_stranger(pid, notes).threads)
    except ProbingError:
        return "cannot be looked at"
    if thread is None:
        return "has no main thread that could be seen"
    line = own_line(thread.frames)
    return f"is {thread.waiting or 'running'}" + (f" at {line}" if line else "")
