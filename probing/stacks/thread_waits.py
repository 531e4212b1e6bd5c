"""Which thread has what another one waits for, followed to its end, and circles of such waits.

Rules of this file: pure functions of stacks. A circle is a deadlock only where every wait of it is
settled and has no time limit: then all of them were so at one moment, and nothing in them can end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..messages.common import Awaited, Frame, ThreadStack
from .waits import library_path

LIKELY = "most likely"


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
    return tuple(circle for circle in found.values() if circle)


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
    if holder is None or awaits.kind == "thread":
        return f"{text}, {awaits.who}" if awaits.who else text
    if awaits.kind == "queued":
        is_own = holder.thread_id == thread.thread_id
        behind = "its own" if is_own else f"that of {thread_name(holder)}"
        return f"{text}, which is queued behind {behind}, as no thread of the pool is free"
    verb = {"import": "done by", "task": "run by"}.get(awaits.kind, "held by")
    likely = "" if awaits.is_certain else f"{LIKELY} "
    since = f" since {awaits.since}" if awaits.since else ""
    return f"{text}, {likely}{verb} {thread_name(holder)}{since}"


def has_words(awaits: Awaited) -> str:
    """What whoever has something does with it, in words that fit behind its name."""
    likely = "" if awaits.is_certain else f"{LIKELY} "
    since = f" since {awaits.since}" if awaits.since else ""
    if awaits.kind == "thread":
        return "must end first"
    if awaits.kind == "import":
        return f"is at {awaits.what}{since}"
    if awaits.kind == "task":
        return f"runs {awaits.what}"
    if awaits.kind == "queued":
        return f"must be free before {awaits.what} can begin"
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
    """Whether it waits until it gets what it waits for, and was seen to do so at one moment."""
    awaits = thread.awaits
    return awaits is not None and awaits.is_settled and not awaits.has_limit
