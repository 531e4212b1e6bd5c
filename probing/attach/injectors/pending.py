"""The way in called *pending*: a call is put into CPython's own queue of pending calls.

With every thread held for a moment, the function ``PyRun_SimpleString`` and the address of a text
are appended to the queue, and the interpreter is told that there is something to do. It runs the
text at its next safe point. No thread of the process is made to do anything; only data changes.

Rules of this file: everything is looked at before anything is written, and all that is looked
at must make sense, or nothing is written: a layout that is not this build's is found out here.
The queue changes in one write. A text that is not yet known to have run is never overwritten.
"""

from __future__ import annotations

import contextlib
import re
import struct
import time
from typing import NamedTuple

from .borrowing.memory import Interpreter, Memory, Slack, executable_ranges, read_maps
from .borrowing.tracing import all_stopped
from .layouts import CALLS_TO_DO, PendingLayout, QueueLayout, layout_for
from .refusal import CannotInject

LONGEST_CODE = 192
"""In bytes, the zero at the end included: it lies in the tail of a page."""
_ALIGNMENT = 16
_ATTEMPTS = 50
_PAUSE_S = 0.002
_NO_LOCK_PLACE = 7


class PlacedCall:
    """Code that was put into the queue.

    Attributes:
        held_s: For how long the process stood still, in seconds.
    """

    def __init__(
        self, interpreter: Interpreter, plan: _Plan, text: bytes, *, text_at: int, index: int
    ) -> None:
        self.held_s = 0.0
        self._interpreter = interpreter
        self._plan = plan
        self._text = text
        self._text_at = text_at
        self._index = index

    def is_taken(self) -> bool:
        """Whether the interpreter has taken it out of the queue: it runs, or has run.

        Raises:
            CannotInject: The process has ended.
        """
        return not self._waits(_Queue(self._interpreter.memory, self._plan))

    def wipe(self) -> None:
        """Clear the text, so that its place can be used again.

        Only once the code is seen to have run: between its leaving the queue and its first
        effect the interpreter still reads the text. A process that has ended is no error.
        """
        memory = self._interpreter.memory
        with contextlib.suppress(CannotInject):
            if memory.read(self._text_at, len(self._text)) == self._text:
                memory.write(self._text_at, bytes(len(self._text)))

    def _waits(self, queue: _Queue) -> bool:
        """Whether the queue still holds this call."""
        is_inside = (self._index - queue.first) % queue.layout.entries < queue.used
        return is_inside and queue.entry(self._index) == (self._plan.function, self._text_at)


def inject(interpreter: Interpreter, code: str, *, any_thread: bool = False) -> PlacedCall:
    """Put code into the queue; it runs at the interpreter's next safe point.

    Args:
        interpreter: Where.
        code: Must catch all that it raises, SystemExit included: nobody else would. It may run much
            later, in a forked child too, and as often as it was put there.
        any_thread: Whether any thread of Python's may run it, rather than the main thread alone;
            from Python 3.12 on.

    Raises:
        CannotInject: It is not possible now; nothing was changed in the process.
    """
    text = code.encode() + b"\0"
    if b"\0" in text[:-1]:
        raise CannotInject("code for its queue must be text without a zero")
    if len(text) > LONGEST_CODE:
        raise _no_room(text, f"its queue is given no more than {LONGEST_CODE}")
    if interpreter.is_free_threaded:
        raise CannotInject("the queue of builds without the interpreter lock is not known here")
    layout = layout_for(interpreter.version)
    if any_thread and not layout.main_queues:
        raise CannotInject("before Python 3.12 the main thread alone looks into its queue")
    slack = interpreter.slack()
    if slack.size < len(text):
        raise _no_room(text, f"its interpreter leaves {slack.size} spare bytes")
    function = interpreter.address("PyRun_SimpleString")
    for _ in range(_ATTEMPTS):
        start = time.perf_counter()
        with all_stopped(interpreter.pid):
            plan = _look(interpreter, layout, function, any_thread=any_thread)
            placed = plan and _place(interpreter, plan, text, slack)
        if placed:
            placed.held_s = time.perf_counter() - start
            return placed
        time.sleep(_PAUSE_S)
    raise CannotInject("its queue is always locked")


class _Plan(NamedTuple):
    """Where the call goes.

    Attributes:
        queue: The queue.
        ring: What it looks like.
        limit: How many calls it takes.
        function: What is to be called.
        breakers: What to write once it is there, so that the interpreter looks: address and bytes.
    """

    queue: int
    ring: QueueLayout
    limit: int
    function: int
    breakers: tuple[tuple[int, bytes], ...] = ()


class _Queue:
    """One reading of a queue."""

    def __init__(self, memory: Memory, plan: _Plan) -> None:
        self.layout = plan.ring
        self.limit = plan.limit
        self._memory = memory
        self._address = plan.queue
        self._data = bytearray(memory.read(plan.queue, plan.ring.size))
        self.first = self._number(plan.ring.first)
        self.next = self._number(plan.ring.next)

    @property
    def used(self) -> int:
        """How many calls wait."""
        if self.layout.waiting is not None:
            return self._number(self.layout.waiting)
        return (self.next - self.first) % self.layout.entries

    def entry(self, index: int) -> tuple[int, int]:
        """The function and the argument of one call."""
        at = self.layout.calls + index * self.layout.entry_size
        function, argument = struct.unpack_from("<QQ", self._data, at)
        return function, argument

    def is_locked(self) -> bool:
        """Whether some thread is changing it.

        Raises:
            CannotInject: What should be its lock is none.
        """
        lock = self.layout.lock
        if self.layout.waiting is not None:
            value = self._data[lock]
            if value > 3:
                raise _not_as_expected("its lock")
            return value != 0
        (address,) = struct.unpack_from("<Q", self._data, lock)
        if not address or address & _NO_LOCK_PLACE:
            raise _not_as_expected("its lock")
        value = self._memory.u32(address)
        if value > 1:
            raise _not_as_expected("its lock")
        return value == 0

    def check(self, executable: tuple[tuple[int, int], ...]) -> None:
        """Make sure that this is a queue.

        Raises:
            CannotInject: It is not.
        """
        layout = self.layout
        if not (0 <= self.first < layout.entries and 0 <= self.next < layout.entries):
            raise _not_as_expected("its ends")
        between = (self.next - self.first) % layout.entries
        if not 0 <= self.used <= self.limit or self.used % layout.entries != between:
            raise _not_as_expected("its length")
        if layout.limit is not None and self._number(layout.limit) != self.limit:
            raise _not_as_expected("its limit")
        if layout.to_do is not None and self._number(layout.to_do) not in (0, 1):
            raise _not_as_expected("its mark")
        queued = {(self.first + number) % layout.entries for number in range(self.used)}
        for index in range(layout.entries):
            function = self.entry(index)[0]
            # A call that was taken out may still be there.
            if not function and index not in queued:
                continue
            if not any(start <= function < end for start, end in executable):
                raise _not_as_expected(f"its entry {index}")

    def append(self, function: int, argument: int) -> int:
        """Add a call at the end; returns its index."""
        index, layout = self.next, self.layout
        at = layout.calls + index * layout.entry_size
        self._data[at : at + layout.entry_size] = struct.pack("<QQ", function, argument).ljust(
            layout.entry_size, b"\0"
        )
        self.next = (index + 1) % layout.entries
        struct.pack_into("<i", self._data, layout.next, self.next)
        if layout.waiting is not None:
            struct.pack_into("<i", self._data, layout.waiting, self.used + 1)
        if layout.to_do is not None:
            struct.pack_into("<i", self._data, layout.to_do, 1)
        return index

    def store(self) -> None:
        """Write it back."""
        self._memory.write(self._address, bytes(self._data))

    def _number(self, offset: int) -> int:
        return int(struct.unpack_from("<i", self._data, offset)[0])


def _look(
    interpreter: Interpreter, layout: PendingLayout, function: int, *, any_thread: bool
) -> _Plan | None:
    """Look at everything, with all threads held; None while the queue is locked.

    Raises:
        CannotInject: Something is not as it must be.
    """
    memory, runtime = interpreter.memory, interpreter.address("_PyRuntime")
    if memory.i32(runtime + layout.initialized) != 1:
        raise CannotInject("its Python is not ready yet")
    if memory.u64(runtime + layout.finalizing):
        raise CannotInject("its Python is shutting down")
    main = memory.u64(runtime + layout.main_interpreter)
    if not main:
        raise _not_as_expected("its main interpreter")
    threads = memory.chain(memory.u64(main + layout.threads), layout.thread_next)
    if not threads or any(memory.u64(t + layout.thread_interpreter) != main for t in threads):
        raise _not_as_expected("its list of threads")
    if any_thread or not layout.main_queues:
        candidates = [_Plan(main + layout.queue, layout.ring, layout.queue_limit, function)]
    else:
        candidates = [
            _Plan(runtime + offset, layout.ring, layout.main_limit, function)
            for offset in layout.main_queues
        ]
        threads = _main_thread(memory, runtime, layout, threads)
    plan = _the_one_queue(interpreter, candidates)
    queue = _Queue(memory, plan)
    if queue.is_locked():
        return None
    if queue.used >= queue.limit:
        raise CannotInject("its queue is full")
    return plan._replace(breakers=_breakers(memory, layout, main, threads))


def _main_thread(
    memory: Memory, runtime: int, layout: PendingLayout, threads: list[int]
) -> list[int]:
    """The thread state that is to look into the main thread's queue."""
    if layout.main_thread is None:
        return threads
    main_thread = memory.u64(runtime + layout.main_thread)
    if main_thread not in threads:
        raise CannotInject("its main thread runs no Python")
    return [main_thread]


def _the_one_queue(interpreter: Interpreter, candidates: list[_Plan]) -> _Plan:
    """The one place that looks like a queue.

    Raises:
        CannotInject: None does, or more than one.
    """
    found, reasons = [], []
    for plan in candidates:
        try:
            _check(interpreter, _Queue(interpreter.memory, plan))
        except CannotInject as error:
            reasons.append(error.reason)
            continue
        found.append(plan)
    if len(found) == 1:
        return found[0]
    raise CannotInject(reasons[0]) if reasons else _not_as_expected("its place")


def _check(interpreter: Interpreter, queue: _Queue) -> None:
    """Make sure that this is a queue."""
    queue.is_locked()
    try:
        queue.check(executable_ranges(interpreter.maps))
    except CannotInject:
        # Libraries may have been loaded since the interpreter was found.
        queue.check(executable_ranges(read_maps(interpreter.pid)))


def _breakers(
    memory: Memory, layout: PendingLayout, main: int, threads: list[int]
) -> tuple[tuple[int, bytes], ...]:
    """What makes the interpreter look into its queue."""
    if layout.interpreter_breaker is not None:
        at = main + layout.interpreter_breaker
        if memory.i32(at) not in (0, 1):
            raise _not_as_expected("the mark of its interpreter")
        return ((at, struct.pack("<i", 1)),)
    assert layout.thread_breaker is not None
    places = [thread + layout.thread_breaker for thread in threads]
    return tuple((at, struct.pack("<Q", memory.u64(at) | CALLS_TO_DO)) for at in places)


def _place(interpreter: Interpreter, plan: _Plan, text: bytes, slack: Slack) -> PlacedCall:
    """Write text, queue and breakers, in the order in which a half-done job does no harm."""
    memory = interpreter.memory
    text_at = _free_place(memory, slack, text)
    queue = _Queue(memory, plan)
    memory.write(text_at, text)
    index = queue.append(plan.function, text_at)
    queue.store()
    for at, data in plan.breakers:
        memory.write(at, data)
    return PlacedCall(interpreter, plan, text, text_at=text_at, index=index)


def _free_place(memory: Memory, slack: Slack, text: bytes) -> int:
    """Where so many spare bytes are zero, and so is the one before them: another text's end.

    Raises:
        CannotInject: Nowhere.
    """
    spare = memory.read(slack.address, slack.size)
    for start in range(0, slack.size - len(text) + 1, _ALIGNMENT):
        if not any(spare[max(0, start - 1) : start + len(text)]):
            return slack.address + start
    free = max(map(len, re.findall(rb"\0+", spare)), default=0)
    raise _no_room(
        text,
        f"of its {slack.size} spare bytes no more than {free} in a row are free, as the others are"
        " in use by code that waits to be run",
    )


def _no_room(text: bytes, why: str) -> CannotInject:
    """The refusal of code for which there is no room; most of it is the path of a run folder."""
    return CannotInject(
        f"the code for its queue has {len(text)} bytes, and {why}: with a shorter path in"
        " PROBING_HOME it has fewer"
    )


def _not_as_expected(what: str) -> CannotInject:
    return CannotInject(f"its queue of pending calls does not look as expected ({what})")
