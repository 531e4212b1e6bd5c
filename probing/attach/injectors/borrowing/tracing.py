"""Stops threads of another process and lets them go again: ptrace, through the C library.

Rules of this file: one thread of ours does all of it, because the kernel knows a tracer by its
thread. A thread is seized, never attached to, so that no signal is sent to it; it goes on when we
end, however we end. So it is never stopped in a way that it would die of alone, as at a trap or
behind a single step, of which it would get the signal. A signal that comes while a thread is
stopped is delivered to it later, as it was. Every wait has a limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator

from ..refusal import CannotInject
from .machines import GENERAL_REGISTERS, MACHINES

_POKETEXT, _CONT, _DETACH, _SYSCALL = 4, 7, 17, 24
_GETREGSET, _SETREGSET, _SEIZE, _INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
_GETSIGMASK, _SETSIGMASK = 0x420A, 0x420B
_MARK_CALLS = 1
"""``PTRACE_O_TRACESYSGOOD``: a stop at a system call has a number that is no signal's. Nor can it
be sent as one when the tracer is killed meanwhile, which of the usual SIGTRAP the thread dies."""
_AT_CALL = signal.SIGTRAP | 0x80
_WORD = 8
_ALL_CHILDREN = 0x40000000
"""``__WALL``: wait for threads of other processes, too."""
_POLL_S = 0.0002
_STOP_S = 0.2
"""How long to wait for a thread while others are held already."""
_PATIENT_S = 2.0
"""How long where nobody is: on a loaded machine a thread may not get to run at once."""
_MASK_BYTES = 8
_LARGEST_SET = 16384
"""More than the state of all of a processor's registers takes, the vector registers included."""

FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS}
"""Signals that a thread gets for what it does itself."""
_HELD_BACK = signal.valid_signals() - FAULTS - {signal.SIGTRAP, signal.SIGKILL, signal.SIGSTOP}

_late: list[TracedThread] = []
"""Threads that have been told to stop, have not, and are to be let go."""


class _Vector(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class TracedThread:
    """One thread under our hand, from `stop` to `let_go`.

    Attributes:
        is_stopped: Whether it stands still.
        signal: That which it stopped at on its way to handling it; 0 for none. `go_on` and `let_go`
            hand it over.
        is_at_call: Whether it stopped at a system call, at its beginning or its end.
    """

    def __init__(self, pid: int, thread_id: int) -> None:
        self.pid = pid
        self.thread_id = thread_id
        self._is_seized = False
        self.signal = 0
        self.is_at_call = False
        self.is_stopped = False

    def stop(self, timeout_s: float = _PATIENT_S) -> None:
        """Stop the thread where it is.

        Raises:
            CannotInject: It is gone, may not be traced, or did not stop in time.
        """
        self.seize()
        self.wait_stopped(timeout_s)
        self.heal()

    def seize(self) -> None:
        """Have the thread stop as soon as it can."""
        self._call(_SEIZE, 0, _MARK_CALLS)
        self._is_seized = True
        self.ask_to_stop()

    def heal(self) -> None:
        """Have it go on with a system call that the stop has ended, as if it had not."""
        machine = MACHINES.get(platform.machine())
        if machine is None or self.signal:
            return
        changed = machine.going_on(self.read_set(GENERAL_REGISTERS))
        if changed is not None:
            self.write_set(GENERAL_REGISTERS, changed)

    def wait_stopped(self, timeout_s: float | None = None) -> None:
        """Wait until the thread stops: because it was told to, at a system call, or at a signal.

        Args:
            timeout_s: How long; None for as long as others may be held meanwhile.

        Raises:
            CannotInject: It ended, or did not stop in time.
        """
        if timeout_s is None:
            timeout_s = _STOP_S
        end = time.monotonic() + timeout_s
        while True:
            try:
                found, status = os.waitpid(self.thread_id, _ALL_CHILDREN | os.WNOHANG)
            except ChildProcessError:
                raise CannotInject(f"thread {self.thread_id} ended") from None
            if found:
                break
            if time.monotonic() > end:
                raise CannotInject(f"thread {self.thread_id} did not stop within {timeout_s:g} s")
            signal.sigtimedwait((signal.SIGCHLD,), _POLL_S)  # which the kernel sends at a stop
        if not os.WIFSTOPPED(status):
            raise CannotInject(f"thread {self.thread_id} ended")
        self.is_stopped = True
        number, event = os.WSTOPSIG(status), status >> 16
        self.is_at_call = number == _AT_CALL
        self.signal = 0 if event or self.is_at_call else number

    def has_stopped(self) -> None:
        """Take note that it has stopped meanwhile.

        Raises:
            CannotInject: It has not, or is gone.
        """
        self.wait_stopped(0.0)

    def interrupt(self, timeout_s: float | None = None) -> None:
        """Stop the thread again after `go_on`."""
        self.ask_to_stop()
        self.wait_stopped(timeout_s)

    def ask_to_stop(self) -> None:
        """Have the thread stop as soon as it can, or once more if it stands still."""
        self._call(_INTERRUPT)

    def go_on(self, *, to_next_call: bool = False) -> None:
        """Let the thread run, still ours.

        Args:
            to_next_call: Whether it is to stop when it begins or ends a system call.
        """
        self.is_stopped = False
        self._call(_SYSCALL if to_next_call else _CONT, 0, self.signal)

    def let_go(self) -> None:
        """The thread goes on as if nothing had been; a thread that is gone is no error.

        The kernel lets go of stopped threads alone. One that did not stop in time would do so
        later and stand still as long as we live: `let_late_ones_go` is for it.
        """
        if self._is_seized and not self.is_stopped:
            _late.append(self)
            return
        with contextlib.suppress(CannotInject):
            self._call(_DETACH, 0, self.signal)

    def read_set(self, kind: int) -> bytes:
        """One of the thread's register sets, as the kernel lays it out."""
        buffer = ctypes.create_string_buffer(_LARGEST_SET)
        vector = _Vector(ctypes.addressof(buffer), len(buffer))
        self._call(_GETREGSET, kind, ctypes.addressof(vector))
        return buffer.raw[: vector.size]

    def write_set(self, kind: int, data: bytes) -> None:
        """Put a register set in place."""
        buffer = ctypes.create_string_buffer(data, len(data))
        vector = _Vector(ctypes.addressof(buffer), len(data))
        self._call(_SETREGSET, kind, ctypes.addressof(vector))

    def write_code(self, address: int, code: bytes) -> None:
        """Write where the process itself may not; a multiple of 8 bytes."""
        for at in range(0, len(code), _WORD):
            word = int.from_bytes(code[at : at + _WORD], sys.byteorder)
            self._call(_POKETEXT, address + at, word)

    def signal_mask(self) -> int:
        """The signals that the thread blocks, as the kernel's bit mask."""
        mask = ctypes.c_uint64()
        self._call(_GETSIGMASK, _MASK_BYTES, ctypes.addressof(mask))
        return mask.value

    def set_signal_mask(self, mask: int) -> None:
        """Have the thread block these signals."""
        value = ctypes.c_uint64(mask)
        self._call(_SETSIGMASK, _MASK_BYTES, ctypes.addressof(value))

    def _call(self, request: int, address: int = 0, data: int = 0) -> None:
        """One ptrace call.

        Raises:
            CannotInject: The kernel refuses it.
        """
        if _libc.ptrace(request, self.thread_id, address, data) == -1:
            reason = os.strerror(ctypes.get_errno())
            raise CannotInject(f"thread {self.thread_id} cannot be traced ({reason})")


def held_back_mask() -> int:
    """Blocks every signal but those that tell of a fault of the thread's own code."""
    return sum(1 << (number - 1) for number in _HELD_BACK)


def thread_ids(pid: int) -> list[int]:
    """The threads of a process, main thread first.

    Raises:
        CannotInject: It is gone.
    """
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        raise CannotInject("it has ended") from None


@contextlib.contextmanager
def all_stopped(pid: int) -> Iterator[None]:
    """Every thread of the process stands still inside the ``with`` block.

    Raises:
        CannotInject: A thread could not be stopped; then all go on.
    """
    let_late_ones_go()
    held: dict[int, TracedThread] = {}
    try:
        # Threads that still run may start others, so look again until there is none new.
        while new := [number for number in thread_ids(pid) if number not in held]:
            found = [TracedThread(pid, number) for number in new]
            held.update(zip(new, found, strict=True))
            # All are told to stop before any is waited for: so the first waits for the slowest
            # and not for the sum of them.
            told = [thread for thread in found if _unless_gone(thread, TracedThread.seize)]
            for thread in told:
                if _unless_gone(thread, TracedThread.wait_stopped):
                    thread.heal()
        yield
    finally:
        for thread in held.values():
            thread.let_go()


def let_late_ones_go() -> None:
    """Let the threads go that have stopped since they were given up on."""
    for thread in _late[:]:
        try:
            if _unless_gone(thread, TracedThread.has_stopped):
                thread.heal()
                thread.let_go()
        except CannotInject:
            continue
        _late.remove(thread)


def _unless_gone(thread: TracedThread, do: Callable[[TracedThread], object]) -> bool:
    """Do something with a thread; False for one that has ended meanwhile."""
    try:
        do(thread)
    except CannotInject:
        if os.path.exists(f"/proc/{thread.pid}/task/{thread.thread_id}"):
            raise
        return False
    return True
