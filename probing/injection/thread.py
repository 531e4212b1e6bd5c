"""The way in called *thread*: a new thread of the process's own runs the code.

A thread that waits in a harmless system call is made to call ``pthread_create``, which takes
milliseconds, and goes on waiting. The new thread waits for the interpreter lock like any other
thread of Python, runs the code, gives its memory back and ends. So the code runs whenever the lock
becomes free, even while the main thread never comes back from C, and does no harm until then.

Rules of this file: one mapping is made in the process. Its first part (trap and stack) belongs
to the borrowed thread and is unmapped before it goes on; the second (body, data, code) to the
new thread, which unmaps it itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .machines import MACHINES, Machine, ThreadData
from .memory import Interpreter
from .refusal import CannotInject
from .remote_call import BorrowedThread
from .victims import choose, waiting_threads

_PAGE = 4096
_STACK_PAGES = 32
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x22
_TRIED_VICTIMS = 3
_SCRATCH = 64
"""Room above the stack of a call for what it hands back through a pointer."""


class _Layout(NamedTuple):
    """Where things lie in the mapping."""

    base: int
    size: int

    @property
    def borrowed_size(self) -> int:
        """The part that the borrowed thread uses: a page for the trap, then the stack."""
        return (1 + _STACK_PAGES) * _PAGE

    @property
    def handle(self) -> int:
        """Where ``pthread_create`` puts the new thread's handle."""
        return self.base + self.borrowed_size - _SCRATCH

    @property
    def stack_top(self) -> int:
        """16-byte aligned, as calls want it."""
        return self.handle - _SCRATCH

    @property
    def body(self) -> int:
        """What the new thread runs."""
        return self.base + self.borrowed_size

    @property
    def data(self) -> int:
        """The `ThreadData`, with the code behind it."""
        return self.body + _PAGE


def machine_of(interpreter: Interpreter) -> Machine:
    """The processor of a process.

    Raises:
        CannotInject: We have no instructions for it.
    """
    if interpreter.machine not in MACHINES:
        raise CannotInject(f"processors of the kind {interpreter.machine} are not known here")
    return MACHINES[interpreter.machine]


def inject(interpreter: Interpreter, code: str, *, timeout_s: float = 2.0) -> float:
    """Start a thread in the process that runs the code once it gets the interpreter lock.

    Args:
        timeout_s: How long one borrowed thread may take to start it.

    Returns:
        How long the borrowed thread was away, in seconds.

    Raises:
        CannotInject: It is not possible now; nothing has changed in the process.
    """
    machine = machine_of(interpreter)
    victims = choose(waiting_threads(interpreter.pid), machine, interpreter.maps)
    if not victims:
        raise CannotInject(
            "none of its threads waits in a system call that it can be borrowed from"
        )
    begin = _Start(interpreter, machine, code, timeout_s)
    reasons = []
    for thread_id in victims[:_TRIED_VICTIMS]:
        borrowed = BorrowedThread(interpreter.pid, thread_id, machine, begin.system_call_at)
        try:
            with borrowed:
                begin.run_in(borrowed)
        except CannotInject as error:
            reasons.append(error.reason)
            continue
        return borrowed.held_s
    raise CannotInject("; ".join(dict.fromkeys(reasons)))


class _Start:
    """The start of one thread, tried in one borrowed thread after the other."""

    def __init__(
        self, interpreter: Interpreter, machine: Machine, code: str, timeout_s: float
    ) -> None:
        address, libc = interpreter.address, interpreter.libc_address
        self.system_call_at = find_system_call(interpreter, machine)
        self._memory = interpreter.memory
        self._machine = machine
        self._timeout_s = timeout_s
        self._code = code.encode() + b"\0"
        self._create, self._detach = libc("pthread_create"), libc("pthread_detach")
        self._functions = (
            address("PyGILState_Ensure"),
            address("PyRun_SimpleString"),
            address("PyGILState_Release"),
        )
        self._unmap = libc("munmap")

    def run_in(self, borrowed: BorrowedThread) -> None:
        """Make the mapping and the thread.

        Raises:
            CannotInject: It failed; what was made is taken away again where that is safe.
        """
        pages = 3 + _STACK_PAGES + len(self._code) // _PAGE + 1
        size = pages * _PAGE
        machine = self._machine
        base = borrowed.system_call(
            machine.mmap, 0, size, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0
        )
        layout = _Layout(base, size)
        try:
            self._fill(borrowed, layout)
        except CannotInject:
            borrowed.system_call(machine.munmap, base, size)
            raise
        # From here on a call that does not return may have made the thread all the same, so the
        # mapping stays.
        failed = borrowed.call(
            self._create, layout.handle, 0, layout.body, layout.data, timeout_s=self._timeout_s
        )
        if failed & 0xFFFF_FFFF:
            borrowed.system_call(machine.munmap, base, size)
            raise CannotInject("it cannot start another thread")
        handle = self._memory.u64(layout.handle)
        borrowed.call(self._detach, handle, timeout_s=self._timeout_s)
        borrowed.system_call(machine.munmap, base, layout.borrowed_size)

    def _fill(self, borrowed: BorrowedThread, layout: _Layout) -> None:
        """Put trap, body, data and code in place."""
        write, machine = self._memory.write, self._machine
        write(layout.base, machine.trap)
        write(layout.body, machine.thread_body)
        ensure, run, release = self._functions
        data = ThreadData(
            ensure=ensure,
            run=run,
            release=release,
            code=layout.data + _PAGE,
            begin=layout.body,
            size=layout.size - layout.borrowed_size,
            unmap=self._unmap,
        )
        write(layout.data, data.encode())
        write(layout.data + _PAGE, self._code)
        for page in (layout.base, layout.body):
            borrowed.system_call(machine.mprotect, page, _PAGE, _READ | _EXECUTE)
        borrowed.use_stack(self._memory, top=layout.stack_top, trap=layout.base)


def find_system_call(interpreter: Interpreter, machine: Machine) -> int:
    """Where the C library has a system call instruction.

    Raises:
        CannotInject: There is none.
    """
    step = len(machine.system_call) if machine.link else 1  # fixed-width instructions are aligned
    function = interpreter.libc_address("pthread_create")
    for entry in interpreter.maps:
        if "x" in entry.perms and entry.start <= function < entry.end:
            found = _find_aligned(
                interpreter.memory.read, entry.start, entry.end, machine.system_call, step
            )
            if found is not None:
                return found
    raise CannotInject("its C library holds no system call instruction")


def _find_aligned(
    read: Callable[[int, int], bytes], start: int, end: int, wanted: bytes, step: int
) -> int | None:
    """The first place of a byte string at a multiple of `step`."""
    text = read(start, end - start)
    at = text.find(wanted)
    while at >= 0 and at % step:
        at = text.find(wanted, at + 1)
    return start + at if at >= 0 else None
