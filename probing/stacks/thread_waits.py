"""Which thread has what another one waits for, followed to its end, and circles of such waits.

Rules of this file: pure functions of stacks. A circle is a deadlock only where every wait of it is
settled and has no time limit: then all of them were so at one moment, and nothing in them can end.
A wait for a notice is in no deadlock, as nobody knows who else may give it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..messages.common import Awaited, Frame, ThreadStack
from .waits import library_path

LIKELY = "most likely"
NOTICES = {
    "event": "sets",
    "condition": "notifies",
    "barrier": "comes to",
    "item": "puts in",
    "room": "makes",
    "queue": "works on",
    "future": "sets",
}
"""What ends waits that have no owner, by their kind: any thread may do so."""
NOBODY = {
    "event": "which no running function of another thread sets",
    "condition": "which no running function of another thread notifies",
    "barrier": "to which no running function of another thread comes",
    "item": "into which no running function of another thread puts one",
    "room": "out of which no running function of another thread takes an item",
    "queue": "for which no running function of another thread calls task_done",
    "future": "which no running function of another thread sets",
}
"""What is said where nobody is known who does that."""
_VERBS = {"import": "done by", "task": "run by", "coroutine": "run by the event loop of"}
_DOES = {
    "thread": "must end first",
    "import": "is at {what}{since}",
    "task": "runs {what}",
    "coroutine": "runs {what} in its event loop",
    "any": "runs a task ({what} will do)",
    "queued": "must be free before {what} can begin",
    **{kind: f"by its code {verb} {{what}}{{at}}" for kind, verb in NOTICES.items()},
}
"""What whoever has something does with it, by its kind."""


def chain(threads: Iterable[ThreadStack], first: ThreadStack) -> tuple[ThreadStack, ...]:
    """A thread, the one that has what it waits for, the one that this waits for, and so on.

    In a circle the last one waits for one that is in the chain already.
    """
    by_number = {thread.thread_id: thread for thread in threads}
    found = [first]
    while (awaits := found[-1].awaits) is not None:
        holder = by_number.get(awaits.holder_id or 0)
        if holder is None or holder in found:
            break
        found.append(holder)
    return tuple(found)


def deadlocks(threads: Sequence[ThreadStack]) -> tuple[tuple[ThreadStack, ...], ...]:
    """The circles of threads that wait for each other for ever, each once."""
    found: dict[frozenset[int], tuple[ThreadStack, ...]] = {}
    for thread in threads:
        circle = _circle(chain(threads, thread))
        found.setdefault(frozenset(one.thread_id for one in circle), circle)
    return tuple([circle for circle in found.values() if circle])


def is_stuck_behind(threads: Sequence[ThreadStack], thread: ThreadStack) -> bool:
    """Whether a thread is in a deadlock, or waits for ever for one that is."""
    waits = chain(threads, thread)
    circle = _circle(waits)
    if not circle:
        return False
    before = waits[: waits.index(circle[0])]
    return all(map(_waits_for_ever, before))


def deadlock_text(circle: Sequence[ThreadStack]) -> str:
    """Threads that wait for each other, each with its line and that of whoever has what it needs.

    Begins with how sure it is: ``a deadlock`` or ``most likely a deadlock``.
    """
    is_certain = all(one.awaits is not None and one.awaits.is_certain for one in circle)
    waits = [f"{thread_name(thread)} waits for {wait_text(circle, thread)}" for thread in circle]
    return f"{'' if is_certain else f'{LIKELY} '}a deadlock: {'; '.join(waits)}"


def wait_text(threads: Iterable[ThreadStack], thread: ThreadStack) -> str:
    """What a thread waits for and where, and who has it; nothing where that is not known."""
    awaits = thread.awaits
    if awaits is None:
        return ""
    line = own_line(thread.frames)
    text = awaits.what + (f" at {line}" if line else "")
    holder = next((one for one in threads if one.thread_id == awaits.holder_id), None)
    if holder is None or awaits.kind in {"thread", "any"}:
        return f"{text}, {awaits.who}" if awaits.who else text
    return f"{text}, {_holder_words(awaits, thread, holder)}"


def _holder_words(awaits: Awaited, thread: ThreadStack, holder: ThreadStack) -> str:
    """Who has what a thread waits for, in words that fit behind that."""
    is_own = holder.thread_id == thread.thread_id
    if awaits.kind in NOTICES:
        verb = f"which by its code {thread_name(holder)} {NOTICES[awaits.kind]}"
        return f"{verb} at {awaits.since}"
    if awaits.kind == "coroutine" and is_own:
        return "which its own event loop is to run"
    if awaits.kind == "queued":
        behind = "its own" if is_own else f"that of {thread_name(holder)}"
        return f"which is queued behind {behind}, as no thread of the pool is free"
    verb = _VERBS.get(awaits.kind, "held by")
    likely = "" if awaits.is_certain else f"{LIKELY} "
    since = f" since {awaits.since}" if awaits.since else ""
    return f"{likely}{verb} {thread_name(holder)}{since}"


def has_words(awaits: Awaited) -> str:
    """What whoever has something does with it, in words that fit behind its name."""
    since = f" since {awaits.since}" if awaits.since else ""
    template = _DOES.get(awaits.kind)
    if template is not None:
        at = f" at {awaits.since}" if awaits.since else ""
        return template.format(what=awaits.what, since=since, at=at)
    likely = "" if awaits.is_certain else f"{LIKELY} "
    return f"{likely}{'has held' if since else 'holds'} {awaits.what}{since}"


def thread_name(thread: ThreadStack) -> str:
    """What people call a thread."""
    number = f"{thread.thread_id} " if thread.thread_id else ""
    return f'thread {number}"{thread.name}"'


def own_line(frames: Iterable[Frame]) -> str | None:
    """The innermost line of the job's own code."""
    for frame in frames:
        if frame.kind == "python" and library_path(frame.file) is None:
            file, func = frame.file.rpartition("/")[2], frame.func.rpartition(".")[2]
            return f"{file}:{frame.lineno} in {func}"
    return None


def _circle(waits: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The end of a chain that leads back into it; nothing where it is no deadlock."""
    last = waits[-1].awaits
    numbers = [thread.thread_id for thread in waits]
    if last is None or last.holder_id not in numbers:
        return ()
    circle = tuple(waits[numbers.index(last.holder_id) :])
    return circle if all(map(_waits_for_ever, circle)) else ()


def _waits_for_ever(thread: ThreadStack) -> bool:
    """Whether it waits until it gets what it waits for, and was seen to do so at one moment.

    Not for what others may give, too, whom nobody knows.
    """
    awaits = thread.awaits
    if awaits is None or awaits.kind in NOTICES or awaits.kind == "any":
        return False
    if awaits.kind == "semaphore" and not awaits.is_certain:
        return False
    return awaits.is_settled and not awaits.has_limit
