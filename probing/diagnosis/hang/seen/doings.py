"""What a rank does, from the stack of its training thread.

Rules of this file: pure functions of a backtrace. The words of `waits` are kept where they say
enough; which lines are a DataLoader, a checkpoint or the end of a process is decided here.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

from ....messages.common import Backtrace, Frame, ThreadStack
from ....stacks.text import HELD, LOOKED_AT
from ....stacks.thread_waits import (
    NOTICES,
    chain,
    deadlock_text,
    deadlocks,
    has_words,
    is_stuck_behind,
    own_line,
    thread_name,
    wait_text,
)
from ....stacks.waits import WAITS_FOR_GIL, library_path
from ..evidence import Doing, DoingKind
from .device_waits import reads_device
from .looks import is_agents
from .prompts import PROMPTS, SERVES, at_prompt

_STACK = 4
_MOST_TASKS = 3
IMPORTS = "is importing "
"""How the words begin about a thread that imports what others have written."""
IT_WAITS = "; it waits for that"
"""How they end about one whose lock, or whatever it is, another thread has."""
_IMPORT = re.compile(r"<frozen importlib")
_ENDED = "ended"
_NAMED = "the "
"""What stands in the words for something that the code has a name for."""
_NO_DAEMON = "a thread that is no daemon keeps its process"
_IDLE = "idle"
_IDLE_LOOP = "idle in its asyncio event loop"
_LOADER = re.compile(r"torch/utils/data/")
_CHECKPOINT = re.compile(
    r"torch/serialization\.py|torch/distributed/checkpoint/|torch/_weights_only|safetensors/"
)
_CHECKPOINT_NAME = re.compile(r"(?i)checkpoint|(^|[._])save(_|$)|snapshot")
_COLLECTIVE = re.compile(r"torch/distributed/(distributed_c10d|_functional_collectives)\.py")
_STORE = re.compile(r"(?i)store\w*(\(\))?\.(wait|get|multi_get|compare_set|barrier)\(")
"""A line whose innermost call is one of `torch.distributed.Store`, which has no frame."""
_WORKER = re.compile(r"DataLoader worker \d+ \(pid (\d+)\)$")
_GROUP_MAKER, _GROUP_LOCAL = "new_group", "ranks"
_WORDS: tuple[tuple[str, DoingKind], ...] = (
    ("waiting for the other ranks to join", "joining"),
    ("waiting for the other ranks", "collective"),
    ("waiting for another rank", "collective"),
    ("waiting for a batch", "loader"),
    ("waiting at exit", "exiting"),
    ("in the backward pass", "backward"),
    ("waiting for the GPU", "device"),
    (WAITS_FOR_GIL, "gil"),
    ("waiting for a lock", "lock"),
    ("waiting for a condition", "lock"),
    ("waiting for an event", "lock"),
    ("waiting for a semaphore", "lock"),
    ("waiting for a C mutex", "lock"),
    ("sleeping", "sleep"),
    ("stopped", "stopped"),
    (_ENDED, "unknown"),
    ("reading a file", "io"),
    ("writing to a file", "io"),
    ("opening a file", "io"),
    ("waiting for data to reach the disk", "io"),
    ("waiting for a file lock", "io"),
    ("in an uninterruptible wait", "io"),
    (HELD, "held"),
    (LOOKED_AT, "looked_at"),
    ("running", "python"),
    ("waiting", "waiting"),
    (_IDLE, "idle"),
)
"""How the words of `waits` begin, and what kind that is."""
_BY_WORDS = frozenset({
    "collective", "joining", "stopped", "exiting", "held", "looked_at", "idle", "unknown",
})  # fmt: skip
"""Kinds of which the frames tell no better."""


def doing_of(trace: Backtrace, thread_id: int | None = None) -> Doing | None:
    """What the training thread of a process does; None where no thread was seen.

    Args:
        thread_id: The thread that trains; without it, or where it is gone, the main one.
    """
    thread = training_thread(trace.threads, thread_id)
    if thread is None:
        return None
    prompt = at_prompt(trace, thread)
    words = prompt or thread.waiting or ""
    kind = _kind(words, thread.frames)
    if kind == "idle" and not prompt and _may_await(trace, thread):
        kind = "waiting"
    holders = chain(trace.threads, thread)[1:]
    holder = _kind(holders[-1].waiting or "", holders[-1].frames) if holders else None
    told = (
        (prompt and f"is {prompt}")
        or _lock_words(trace, thread, holders)
        or _import_words(thread)
        or _holder(trace, thread)
        or _at_exit(trace, thread, kind)
        or _phrase(kind, words) + _unknown_owner(thread) + _tasks_words(trace, thread)
    )
    return Doing(
        kind=kind,
        words=_in_handler(thread) + told,
        where=own_line(thread.frames),
        stack=tuple(_frame(frame) for frame in thread.frames if frame.kind == "python")[:_STACK],
        holder=holder,
        is_deadlock=is_stuck_behind(trace.threads, thread),
    )


def is_at_prompt(doing: Doing | None) -> bool:
    """Whether it waits for a cell or a line of code, with nothing in hand."""
    return doing is not None and doing.kind == "idle" and doing.words.endswith(PROMPTS)


def worker_of(trace: Backtrace, thread_id: int | None = None) -> ThreadStack | None:
    """The thread whose work counts: the one that trains, or has at last what that waits for."""
    thread = training_thread(trace.threads, thread_id)
    return None if thread is None else chain(trace.threads, thread)[-1]


def awaited_worker(trace: Backtrace) -> int | None:
    """The process of a DataLoader's worker whose batch is waited for, where it is known."""
    thread = training_thread(trace.threads)
    found = _WORKER.search(thread.waiting or "") if thread is not None else None
    return int(found[1]) if found else None


def with_worker(doing: Doing, does: str | None) -> Doing:
    """What a thread does that waits for a worker, with what that one does, where it is known."""
    if doing.kind != "loader" or does is None:
        return doing
    return dataclasses.replace(doing, words=f"{doing.words.removesuffix(')')}, which {does})")


def group_asked_for(trace: Backtrace, thread_id: int | None = None) -> str | None:
    """The ranks that `new_group` was called with, of a stack with local variables."""
    thread = training_thread(trace.threads, thread_id)
    for frame in thread.frames if thread is not None else ():
        if _function(frame.func) == _GROUP_MAKER:
            values = {local.name: local.value for local in frame.locals or ()}
            return values.get(_GROUP_LOCAL)
    return None


def training_thread(
    threads: Sequence[ThreadStack], thread_id: int | None = None
) -> ThreadStack | None:
    """The thread of that number, else the main thread."""
    for thread in threads:
        if thread_id is not None and thread.thread_id == thread_id:
            return thread
    return next((thread for thread in threads if thread.is_main), None)


def is_idle(thread: ThreadStack) -> bool:
    """Whether a thread has nothing to do until it is given something."""
    return (thread.waiting or "").startswith(_IDLE)


def own_frames(frames: Iterable[Frame]) -> list[Frame]:
    """The frames of the job's own code."""
    return [f for f in frames if f.kind == "python" and library_path(f.file) is None]


def _kind(words: str, frames: Sequence[Frame]) -> DoingKind:
    """What kind of thing a thread does: where it is says more than what it waits for."""
    paths = [library_path(frame.file) for frame in frames if frame.kind == "python"]
    by_words = next((kind for begin, kind in _WORDS if words.startswith(begin)), None)
    if by_words in _BY_WORDS:
        return by_words
    inner = next((frame for frame in frames if frame.kind == "python"), None)
    if inner is not None and _STORE.search(inner.line or ""):
        return "store"
    if inner is not None and reads_device(inner) and by_words in {"python", None}:
        return "device"
    if any(path and _LOADER.match(path) for path in paths):
        return "loader"
    if any(path and _CHECKPOINT.match(path) for path in paths):
        return "checkpoint"
    if any(path and _COLLECTIVE.match(path) for path in paths):
        return "collective"
    if any(_CHECKPOINT_NAME.search(_function(frame.func)) for frame in own_frames(frames)):
        return "checkpoint"
    return by_words or ("python" if frames else "unknown")


def _phrase(kind: DoingKind, words: str) -> str:
    """What it does, as the rest of a sentence that begins with its name."""
    prefix = {"loader": "is in the DataLoader", "checkpoint": "is in its checkpoint code"}.get(kind)
    if prefix is not None:
        return f"{prefix} ({words})" if words else prefix
    if words == _ENDED:
        return "goes on without its main thread, which has ended by itself"
    if kind == "store":
        return "is waiting for a key of the store"
    if kind == "python" or (kind == "device" and "GPU" not in words):
        return "runs Python code"
    return f"is {words}" if words else "is somewhere that could not be told"


def _lock_words(
    trace: Backtrace, thread: ThreadStack, holders: Sequence[ThreadStack]
) -> str | None:
    """Words about who has what a thread waits for, first, and what that one does."""
    last = (thread, *holders)[-1]
    circle = next((c for c in deadlocks(trace.threads) if last in c), None)
    if circle is not None:
        is_in = thread.thread_id in {one.thread_id for one in circle}
        wait = "" if is_in else f"waits for {wait_text(trace.threads, thread)}, which "
        words = deadlock_text(circle).replace("most likely a", "most likely in a", 1)
        return f"{wait}is {'' if words.startswith('most') else 'in '}{words}"
    if not holders or thread.awaits is None:
        return None
    does = _does(trace, last, (thread, *holders))
    turn = f", and waits in turn for {thread_name(last)}, which {does}" if holders[1:] else ""
    return (
        f"is held up by {thread_name(holders[0])}, which {has_words(thread.awaits)}"
        f"{turn or f' and {does}'}{IT_WAITS}"
    )


def _does(trace: Backtrace, last: ThreadStack, waits: Sequence[ThreadStack]) -> str:
    """What the last thread of a chain of waits does; it may wait for one of them itself."""
    awaits = last.awaits
    if awaits is not None and awaits.holder_id in {one.thread_id for one in waits}:
        return f"waits in turn for {wait_text(waits, last)}"
    line = own_line(last.frames)
    tasks = _tasks_words(trace, last)
    words = f"is {last.waiting or 'running'}{_unknown_owner(last)}{tasks}"
    return words + (f" at {line}" if line and not tasks else "")


def _in_handler(thread: ThreadStack) -> str:
    """Words about a function that runs at exit, once all threads that are no daemons have ended."""
    if thread.alive or not thread.is_main or not thread.frames or thread.waiting == _ENDED:
        return ""
    return f"is at exit, in {_function(thread.frames[-1].func)} (atexit), and "


def _unknown_owner(thread: ThreadStack) -> str:
    """Words about what a thread waits for that no thread of the process is known to have."""
    awaits = thread.awaits
    if awaits is None or not awaits.who:
        return ""
    is_unnamed = awaits.kind in NOTICES and _NAMED not in awaits.what
    return f", {awaits.who}" if is_unnamed else f" ({awaits.what}, {awaits.who})"


def _at_exit(trace: Backtrace, thread: ThreadStack, kind: DoingKind) -> str | None:
    """Words about the threads that a process waits for at its end, where they are known."""
    kept = [one for one in trace.threads if one.daemon is False and one.alive]
    kept = [one for one in kept if one is not thread]
    if kind != "exiting" or not kept or any(one.daemon is None for one in trace.threads):
        return None
    texts = []
    for one in kept[:_MOST_TASKS]:
        line = own_line(one.frames)
        does = f"is {one.waiting or 'running'}" + (f" at {line}" if line else "")
        texts.append(f"{thread_name(one)}, which {does}")
    more = f"; and {len(kept) - _MOST_TASKS} more" if len(kept) > _MOST_TASKS else ""
    return f"is waiting at exit for {'; '.join(texts)}{more} ({_NO_DAEMON})"


def _may_await(trace: Backtrace, thread: ThreadStack) -> bool:
    """Whether the event loop of a thread has a task that may train, or nobody could see them."""
    if not (thread.waiting or "").startswith(_IDLE_LOOP):
        return False
    frames = (f for t in trace.tasks if t.thread_id == thread.thread_id for f in t.frames)
    serves = (f.kind != "python" or SERVES.match(library_path(f.file) or "") for f in frames)
    return not is_agents(trace) or not all(serves)


def _tasks_words(trace: Backtrace, thread: ThreadStack) -> str:
    """Words about what the tasks wait for whose event loop has nothing to do."""
    if not (thread.waiting or "").startswith(_IDLE_LOOP):
        return ""
    tasks = [task for task in trace.tasks if task.thread_id == thread.thread_id]
    texts = []
    for task in tasks[:_MOST_TASKS]:
        line = own_line(task.frames)
        texts.append(f"task {task.name} is {task.waiting}" + (f" at {line}" if line else ""))
    more = f" and {len(tasks) - _MOST_TASKS} more" if len(tasks) > _MOST_TASKS else ""
    return f" ({', '.join(texts)}{more})" if texts else ""


def _holder(trace: Backtrace, thread: ThreadStack) -> str | None:
    """Words about a thread that keeps the interpreter lock."""
    if thread.holds_gil and trace.source != "agent":
        return f"holds the interpreter lock ({thread.waiting or 'running'})"
    if thread.waiting == WAITS_FOR_GIL and trace.note:
        return f"waits for the interpreter lock: {trace.note}"
    return None


def _import_words(thread: ThreadStack) -> str | None:
    """Words about an import that the job's own code has begun, and what the thread does in it.

    Not where code of the job's own runs in it: such a module may be the training itself.
    """
    inner = list(itertools.takewhile(_is_of_library, thread.frames))
    at = len(thread.frames) - len(inner)
    imports = [frame for frame in inner if frame.kind == "python"]
    if not at or not imports or not _IMPORT.match(imports[-1].file):
        return None
    bodies = (library_path(f.file) or "" for f in reversed(imports) if f.func == "<module>")
    name = next((p.partition("/")[0].removesuffix(".py") for p in bodies if p), "a module")
    waiting = thread.waiting or "running"
    return f"{IMPORTS}{name}" + ("" if waiting.startswith("running") else f", {waiting}")


def _is_of_library(frame: Frame) -> bool:
    return frame.kind != "python" or library_path(frame.file) is not None


def _frame(frame: Frame) -> str:
    file = library_path(frame.file) or _name(frame.file)
    return f"{_function(frame.func)} ({file}:{frame.lineno})"


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def _function(name: str) -> str:
    """A function's name without the class or function it is in."""
    return name.rpartition(".")[2]
