"""Borrows a thread: has it do an errand, and put itself back as it was.

The thread is stopped in a system call and sent through the instructions of `stubs`, which end by
bringing it back. All that they need is put in place before, in memory that nobody uses; then one
write to its registers sends it off. So whenever we are killed it is either where it was or on its
way there. As long as we live we see to the rest: a fault of the errand is caught, one that does not
end is given up, and at the end the kernel is handed the very registers that it had, so that it goes
on with the interrupted call as if the thread had never been away.

One that does not end is given up only where the thread holds nothing for it: in our instructions
before the call, or asleep at a lock. Out of the allocator it would take the allocator's lock along.
Behind the call there is nothing to give up: it is done, and the thread is on its way back.

Rules of this file: nothing is changed in the thread but by that one write, and, at the end, by
the writes that it would have made itself. Signals wait meanwhile, but for faults.
"""

from __future__ import annotations

import contextlib
import signal
import time
from typing import NamedTuple

from ..refusal import CannotInject, StillAway
from .machines import GENERAL_REGISTERS, MACHINES, Machine
from .memory import Interpreter
from .spare import room_for_code
from .stubs import WORDS, Frame
from .tracing import FAULTS, TracedThread, held_back_mask
from .victims import require_waiting, sleeps_on, waiting_thread

_ALIGNMENT = 64
"""What the instructions that load vector registers ask for; and as much as calls do."""
_FOREVER_S = float("inf")
_LATE_S = 10.0
"""How long an errand that is late is waited for while it may not be given up."""
_LOOK_S = 0.05
"""How long it goes on until it is looked at again."""
_LARGEST_ERRNO = 4095


class Errand(NamedTuple):
    """What a borrowed thread is to do: one call, with memory of its own.

    Attributes:
        function, argument, then: See `Frame`.
        payload: What is put at the beginning of that memory.
        data_size: The part that is the errand's own, which it gives back itself.
        map_size: All of it; the rest is a stack for the call.
        on_own_stack: Whether the thread's own stack serves for the call.
    """

    function: int
    argument: int
    then: int
    payload: bytes
    data_size: int
    map_size: int
    on_own_stack: bool = False


class Done(NamedTuple):
    """What came of an errand.

    Attributes:
        result: What its call gave back, 32 bits; negative where there was no memory for it.
        held_s: How long the thread was away.
    """

    result: int
    held_s: float


def machine_of(interpreter: Interpreter) -> Machine:
    """The processor of a process.

    Raises:
        CannotInject: We have no instructions for it.
    """
    if interpreter.machine not in MACHINES:
        raise CannotInject(f"processors of the kind {interpreter.machine} are not known here")
    return MACHINES[interpreter.machine]


def send(interpreter: Interpreter, thread_id: int, errand: Errand, *, timeout_s: float) -> Done:
    """Have a thread do an errand, and wait until it is back.

    Args:
        timeout_s: How long it may take; then it is called back, as soon as that does no harm.

    Raises:
        CannotInject: It cannot be borrowed, or its errand ended with a fault or not in time.
        StillAway: It is still at its errand, and comes back by itself.
    """
    thread = TracedThread(interpreter.pid, thread_id)
    began = time.monotonic()
    try:
        thread.stop()
        result = _Trip(interpreter, thread, errand).make(timeout_s)
    finally:
        thread.let_go()
    return Done(result, time.monotonic() - began)


class _Trip:
    """One errand of a stopped thread."""

    def __init__(self, interpreter: Interpreter, thread: TracedThread, errand: Errand) -> None:
        """Put in place all that is needed; the thread itself is not changed.

        Raises:
            CannotInject: It cannot be borrowed after all.
        """
        self._machine = machine = machine_of(interpreter)
        self._interpreter = interpreter
        self._memory = interpreter.memory
        self._thread = thread
        self._kept = thread.read_set(GENERAL_REGISTERS)
        self._others = [(kind, thread.read_set(kind)) for kind in machine.other_sets]
        self._mask = thread.signal_mask()
        registers = machine.unpack(self._kept)
        require_waiting(thread, registers, machine, interpreter)
        self._code = room_for_code(interpreter, machine.stub.code)
        way_back = machine.way_back(registers, self._others[0][1], self._mask)
        size = WORDS.size + len(way_back) + len(errand.payload)
        self._frame = (registers[machine.stack] - machine.red_zone - size) & -_ALIGNMENT
        frame = Frame(
            mask=self._mask,
            result=0,
            map_size=errand.map_size,
            data_size=errand.data_size,
            payload_size=len(errand.payload),
            function=errand.function,
            then=errand.then,
            argument=errand.argument,
            stack=self._frame if errand.on_own_stack else 0,
            payload=self._frame + WORDS.size + len(way_back),
        )
        self._memory.write(self._frame, WORDS.pack(*frame) + way_back + errand.payload)
        if self._memory.read(self._code, len(machine.stub.code)) != machine.stub.code:
            thread.write_code(self._code, machine.stub.code)

    def make(self, timeout_s: float) -> int:
        """Send the thread off and wait until it is back; returns the errand's result.

        Raises:
            CannotInject: The errand did not end in time, or with a fault; the thread is back.
            StillAway: It did not end, and could not be given up.
        """
        self._go_to(0)
        # Behind that, not before: alone the thread gives its mask back only at the end of the way.
        self._thread.set_signal_mask(self._mask | held_back_mask())
        try:
            self._wait_marked(timeout_s)
        except CannotInject:
            if not self._comes_after_all():
                raise
        (result,) = WORDS.unpack(self._memory.read(self._frame, WORDS.size))[1:2]
        self._arrive()
        if result >= (1 << 64) - _LARGEST_ERRNO:
            return int(result) - (1 << 64)
        return int(result)

    def _go_to(self, place: int) -> None:
        """Set the thread on its way, at a place in the stub."""
        machine = self._machine
        values = machine.unpack(self._kept) | dict(machine.no_restart)
        values[machine.program] = self._code + place
        values[machine.frame] = values[machine.stack] = self._frame
        self._thread.write_set(GENERAL_REGISTERS, machine.pack(values))

    def _wait_marked(self, timeout_s: float) -> None:
        """Let the thread go on to the last system call of its way.

        Raises:
            CannotInject: It did not come there in time, or stopped at a fault.
        """
        end, thread, machine = time.monotonic() + timeout_s, self._thread, self._machine
        place = self._code + machine.stub.marked
        while not (thread.is_at_call and self._program() == place):
            thread.go_on(to_next_call=True)
            thread.wait_stopped(max(0.0, end - time.monotonic()))
            if thread.signal in FAULTS:
                name, thread.signal = signal.Signals(thread.signal).name, 0
                raise CannotInject(f"a call made in it ended with {name}")

    def _comes_after_all(self) -> bool:
        """Whether an errand that is late, or has failed, ends well yet; else the thread is back.

        Raises:
            StillAway: As in `make`.
        """
        end, is_busy = time.monotonic() + _LATE_S, False
        with contextlib.suppress(CannotInject):  # it has ended
            while not self._may_leave() and not (is_busy := time.monotonic() > end):
                with contextlib.suppress(CannotInject):  # not yet, or it fails now
                    self._wait_marked(_LOOK_S)
                    return True
            if not is_busy:
                self._go_to(self._machine.stub.leave)
                self._wait_marked(_FOREVER_S)
                self._arrive()
        if is_busy:
            raise StillAway(f"thread {self._thread.thread_id} is still busy with the call")
        return False

    def _may_leave(self) -> bool:
        """Stop the thread, however long the kernel keeps it; whether it can leave its errand there.

        That goes for a fault, too, behind which nothing of the errand goes on.
        """
        thread, machine = self._thread, self._machine
        if thread.is_stopped:  # at a fault
            return True
        seen = waiting_thread(self._interpreter.pid, thread.thread_id)
        thread.interrupt(_FOREVER_S)
        if thread.signal in FAULTS:
            thread.signal = 0
            return True
        registers = machine.unpack(thread.read_set(GENERAL_REGISTERS))
        if 0 <= registers[machine.program] - self._code < machine.stub.called:
            return True
        was_asleep = seen is not None and (seen.state, seen.number) == ("S", machine.futex)
        return was_asleep and sleeps_on(registers, machine, self._interpreter)

    def _arrive(self) -> None:
        """Put the thread back as it was, behind the system call that has given its mask back.

        It stops there once more in the way that it was found in, from which the kernel goes on with
        the interrupted call, or with a signal that has come meanwhile.
        """
        thread = self._thread
        thread.ask_to_stop()
        thread.go_on()
        thread.wait_stopped(_FOREVER_S)
        for kind, data in self._others:
            thread.write_set(kind, data)
        thread.write_set(GENERAL_REGISTERS, self._kept)

    def _program(self) -> int:
        """Where the thread is."""
        return self._machine.unpack(self._thread.read_set(GENERAL_REGISTERS))[self._machine.program]
