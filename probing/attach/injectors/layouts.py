"""Where CPython keeps its queue of pending calls, one table per minor release.

Rules of this file: numbers only, of 64-bit builds with the interpreter lock. They are those of
the releases' own headers: `python -m tests.attach.layouts` prints and compares them. Nobody relies
on them alone: `pending` checks that what lies there makes sense before it writes anything.
"""

from __future__ import annotations

from typing import NamedTuple

from .refusal import CannotInject


class QueueLayout(NamedTuple):
    """``struct _pending_calls``: a ring of calls, and what guards it. Offsets within it.

    Attributes:
        size: Of the whole struct, in bytes.
        lock: Up to 3.12 a pointer to the semaphore that guards the ring; since then a mutex of
            one byte, whose lowest bit says that it is taken.
        to_do: An int32 that says that there is something to do; None since 3.13.
        waiting: An int32, how many calls wait; None before 3.13.
        limit: An int32, how many may wait; None before 3.13.
        calls: The ring: each entry begins with the function and its argument, 8 bytes each.
        entry_size: Of an entry, in bytes.
        entries: How many there are.
        first: An int32, the index of the call that is next to run.
        next: An int32, the index at which the next call is put.
    """

    size: int
    lock: int
    to_do: int | None
    waiting: int | None
    limit: int | None
    calls: int
    entry_size: int
    entries: int
    first: int
    next: int


class PendingLayout(NamedTuple):
    """What has to be known of a release to put a call into its queue.

    Attributes:
        initialized: In the runtime: an int32, 1 once the interpreter is ready.
        finalizing: In the runtime: the thread that shuts it down; 0 before.
        main_interpreter: In the runtime: the main interpreter.
        main_queues: In the runtime: the queue that the main thread alone takes from. It moved
            between the patch levels of a release: these are all its places, and only one of
            them looks like a queue. Empty before 3.12, where the main thread alone takes from
            its interpreter's queue.
        main_limit: How many calls the main thread's queue takes.
        main_thread: In the runtime: the main thread's state; None before 3.13, which need not
            know it.
        queue: In the interpreter: its queue.
        queue_limit: How many calls that takes.
        threads: In the interpreter: the first of its thread states.
        interpreter_breaker: In the interpreter: an int32, not 0 when its threads have to look
            for something to do; None since 3.13.
        thread_next: In a thread state: the next one.
        thread_interpreter: In a thread state: its interpreter.
        thread_breaker: In a thread state: the 8 bytes whose bits say what that thread has to
            look for; None before 3.13.
        ring: What a queue looks like.
    """

    initialized: int
    finalizing: int
    main_interpreter: int
    main_queues: tuple[int, ...]
    main_limit: int
    main_thread: int | None
    queue: int
    queue_limit: int
    threads: int
    interpreter_breaker: int | None
    thread_next: int
    thread_interpreter: int
    thread_breaker: int | None
    ring: QueueLayout


CALLS_TO_DO = 1 << 2
"""The bit of a thread's breaker that sends it to the queue (``_PY_CALLS_TO_DO_BIT``)."""

_RING_3_10 = QueueLayout(
    size=536,
    lock=0,
    to_do=8,
    waiting=None,
    limit=None,
    calls=16,
    entry_size=16,
    entries=32,
    first=528,
    next=532,
)

LAYOUTS: dict[tuple[int, int], PendingLayout] = {
    (3, 10): PendingLayout(
        initialized=12,
        finalizing=16,
        main_interpreter=40,
        main_queues=(),
        main_limit=31,
        main_thread=None,
        queue=80,
        queue_limit=31,
        threads=8,
        interpreter_breaker=68,
        thread_next=8,
        thread_interpreter=16,
        thread_breaker=None,
        ring=_RING_3_10,
    ),
    (3, 11): PendingLayout(
        initialized=16,
        finalizing=24,
        main_interpreter=48,
        main_queues=(),
        main_limit=31,
        main_thread=None,
        queue=112,
        queue_limit=31,
        threads=16,
        interpreter_breaker=100,
        thread_next=8,
        thread_interpreter=16,
        thread_breaker=None,
        ring=_RING_3_10,
    ),
    (3, 12): PendingLayout(
        initialized=16,
        finalizing=24,
        main_interpreter=48,
        main_queues=(2016,),
        main_limit=31,
        main_thread=None,
        queue=400,
        queue_limit=31,
        threads=72,
        interpreter_breaker=368,
        thread_next=8,
        thread_interpreter=16,
        thread_breaker=None,
        ring=_RING_3_10._replace(size=544, lock=8, to_do=16, calls=24, first=536, next=540),
    ),
    (3, 13): PendingLayout(
        initialized=600,
        finalizing=608,
        main_interpreter=640,
        main_queues=(2640, 2664),
        main_limit=32,
        main_thread=664,
        queue=32,
        queue_limit=300,
        threads=7344,
        interpreter_breaker=None,
        thread_next=8,
        thread_interpreter=16,
        thread_breaker=24,
        ring=QueueLayout(
            size=7232,
            lock=8,
            to_do=None,
            waiting=12,
            limit=16,
            calls=24,
            entry_size=24,
            entries=300,
            first=7224,
            next=7228,
        ),
    ),
}
"""By minor release."""


def layout_for(version: tuple[int, int]) -> PendingLayout:
    """The layout of a minor release.

    Raises:
        CannotInject: It is not known.
    """
    if version in LAYOUTS:
        return LAYOUTS[version]
    release = ".".join(map(str, version))
    raise CannotInject(f"the layout of the queue of CPython {release} is not known here")
