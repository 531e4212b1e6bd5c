"""Borrows a thread: system calls and function calls made in it, then everything put back.

Rules of this file: the thread is stopped in a system call, and afterwards goes on with that call
as if it had never been away: registers, vector registers and signal mask are those it had. A
call that does not come back in time is given up, which is safe because nothing that it began
belongs to the thread. Signals wait meanwhile, but for faults: a fault is ours, and ends the call.
"""

from __future__ import annotations

import os
import signal
import time
from types import TracebackType

from .machines import GENERAL_REGISTERS, Machine
from .memory import Memory
from .refusal import CannotInject
from .tracing import TracedThread, held_back_mask

_STEP_S = 2.0
_FOREVER_S = float("inf")
_LARGEST_ERRNO = 4095


class BorrowedThread:
    """A stopped thread that makes calls for us; use as a context manager.

    Attributes:
        held_s: How long it was away, once it is back.
    """

    def __init__(self, pid: int, thread_id: int, machine: Machine, system_call_at: int) -> None:
        """Choose the thread; nothing happens to it yet.

        Args:
            system_call_at: Where in the process's memory there is a system call instruction.
        """
        self._thread = TracedThread(pid, thread_id)
        self._machine = machine
        self._system_call_at = system_call_at
        self._owed: list[int] = []
        self._stack = self._trap = 0
        self.held_s = 0.0

    def __enter__(self) -> BorrowedThread:  # noqa: PYI034 - `Self` is newer than Python 3.10
        thread = self._thread
        self._began = time.monotonic()
        try:
            thread.stop()
            _require_no_signal(thread)
            self._registers = thread.read_set(GENERAL_REGISTERS)
            self._others = [(kind, thread.read_set(kind)) for kind in self._machine.other_sets]
            self._mask = thread.signal_mask()
            thread.set_signal_mask(self._mask | held_back_mask())
        except CannotInject:
            thread.let_go()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        thread = self._thread
        try:
            thread.set_signal_mask(self._mask)
            for number, data in self._others:
                thread.write_set(number, data)
            thread.write_set(GENERAL_REGISTERS, self._registers)
        finally:
            thread.let_go()
            self.held_s = time.monotonic() - self._began
            for number in self._owed:
                os.kill(thread.pid, number)

    @property
    def stack_pointer(self) -> int:
        """Where the thread's own stack ends."""
        return self._machine.unpack(self._registers)[self._machine.stack]

    def use_stack(self, memory: Memory, *, top: int, trap: int) -> None:
        """Where calls find their stack, and the trap that they return to.

        Args:
            top: A multiple of 16; the stack grows down from there.
        """
        self._memory, self._stack, self._trap = memory, top, trap

    def system_call(self, number: int, *arguments: int) -> int:
        """Make a system call and return its result.

        Raises:
            CannotInject: It failed.
        """
        machine = self._machine
        changes = dict(zip(machine.system_arguments, arguments, strict=False))
        self._set({machine.system_number: number, **changes}, at=self._system_call_at)
        self._thread.step()
        try:
            self._wait_trap(_STEP_S)
        except CannotInject:
            self._regain()
            raise
        result = self._get(machine.result)
        if result >= (1 << 64) - _LARGEST_ERRNO:
            reason = os.strerror((1 << 64) - result)
            raise CannotInject(f"system call {number} made in it failed ({reason})")
        return result

    def call(self, function: int, *arguments: int, timeout_s: float) -> int:
        """Call a function and return its result.

        Raises:
            CannotInject: It did not return in time, or failed with a fault.
        """
        machine = self._machine
        changes = dict(zip(machine.arguments, arguments, strict=False))
        self._set({**changes, **self._return_to_trap()}, at=function)
        self._thread.go_on()
        try:
            self._wait_trap(timeout_s)
        except CannotInject:
            self._regain()
            raise
        if self._get(machine.program) != self._trap + machine.trapped_at:
            raise CannotInject("a call made in it went astray")
        return self._get(machine.result)

    def _return_to_trap(self) -> dict[str, int]:
        """The registers that make a function return to the trap."""
        machine = self._machine
        if machine.link:
            return {machine.link: self._trap, machine.stack: self._stack}
        self._memory.write(self._stack - 8, self._trap.to_bytes(8, "little"))
        return {machine.stack: self._stack - 8, machine.result: 0}

    def _set(self, changes: dict[str, int], *, at: int) -> None:
        """Have the thread go on at another place, its own registers but for these."""
        machine = self._machine
        values = machine.unpack(self._registers)
        values.update(changes)
        values.update(dict(machine.no_restart))
        values[machine.program] = at
        self._thread.write_set(GENERAL_REGISTERS, machine.pack(values))

    def _get(self, register: str) -> int:
        return self._machine.unpack(self._thread.read_set(GENERAL_REGISTERS))[register]

    def _wait_trap(self, timeout_s: float) -> None:
        """Wait until the thread stops at a trap or after a step.

        Raises:
            CannotInject: It did not in time, or stopped at a fault, which it is not told of.
        """
        while True:
            number = self._thread.wait_stopped(timeout_s)
            if number == signal.SIGTRAP:
                return
            self._thread.forget_signal()
            if number != signal.SIGSTOP:
                name = signal.Signals(number).name
                raise CannotInject(f"a call made in it ended with {name}")
            self._owed.append(number)  # cannot be held back; it is sent again at the end
            self._thread.go_on()

    def _regain(self) -> None:
        """Stop a thread that did not come back, so that it can be put back where it was.

        A thread that has been changed is never left so, however long the kernel keeps it.
        """
        if not self._thread.is_stopped:
            self._thread.interrupt(_FOREVER_S)
            self._thread.forget_signal()


def _require_no_signal(thread: TracedThread) -> None:
    """Leave a thread alone that is on its way to a signal handler."""
    if thread.has_signal:
        raise CannotInject(f"thread {thread.thread_id} was about to handle a signal")
