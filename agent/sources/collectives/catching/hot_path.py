"""The usual collective in one piece: what is done at most calls, and at most waits.

Rules of this file: as those of `..modules`. `method` below runs at every call of a method of
``ProcessGroup``, and at every wait for a work: it takes no lock, calls back nothing, allocates
nothing that stays, and whatever goes wrong in it, torch is called exactly once, and what it returns
or raises is passed on. What is rare is left to `usual`, which does the same in several pieces.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from .....ring.format import DONE, HEADER_SIZE, NULL_FLOAT, NULL_INT, NULL_NAME
from .....ring.rows import PlainRows
from .....safety.guard import Guard, pass_on
from ...shared.recording import Recording
from ...steps.phases import Phases
from ...torch_types import Device, Work
from ..call_tensors import device_of, flat_tensors
from ..entered import Awaited, Call, call_of
from ..groups import Group, Groups
from ..rows import COUNTED, CollectiveRows
from .methods import Maker, MethodStandIn
from .operations import Operation

_OPEN_ROW = struct.Struct("<Qq24sqI24sI48sQ")
"""A whole row in few pieces: packed beforehand are size, root and peer; group, operation, texts and
reduction; and all that the thread knows, down to the closing columns."""
_COLUMNS = """
    seq:q bytes:q root:q peer:q start_ns:q step:I
    process_group:I group_size:I op:I shapes:I dtypes:I reduce_op:I caller:I
    thread_id:I is_async:B error:I wait_ns:q device_s:d growth_bytes:q duration_ns:q
"""
_SIZES = struct.Struct("<qqq")
_TEXTS = struct.Struct("<6I")
_MOST_FACTS = 1024
_USUAL = frozenset({"recv", "barrier", "monitored_barrier"})
_REDUCING = frozenset({"all_reduce", "reduce_scatter"})

Facts = tuple[bytes, bytes, Any]
"""Two pieces of a row, and the device of the tensors; None for the host."""


class HotPath:
    """Makes the functions that stand in for methods of ``ProcessGroup`` and ``Work``."""

    def __init__(
        self, recording: Recording, groups: Groups, rows: CollectiveRows, guard: Guard
    ) -> None:
        rows.ring.layout.require(_COLUMNS)
        if rows.ring.layout.row_size != _OPEN_ROW.size:
            raise AssertionError("the packed row no longer matches the table collectives")
        self._recording = recording
        self._groups = groups
        self._rows = rows
        self._guard = guard

    def helpers(self) -> list[Any]:
        """What the functions call of ours."""
        rows = self._rows  # what the C part does instead has no frame
        mine = (self._learn, self._issued, self._failed, self._note_wait)
        others = (rows.callers.line_at, rows.poll_seldom, rows.replace, Phases.synchronized)
        ours = (PlainRows.still_holds, rows.accelerator.mark, call_of, flat_tensors, _key_of)
        return [*mine, *others, *ours, rows.memory.begins, rows.memory.growth_of]

    def maker_for(self, operation: Operation) -> Maker | None:
        """What makes the function for a method; None for one that is left to `usual`."""
        if operation.root or operation.peer is not None or operation.op in _USUAL:
            return None
        if operation.op in _REDUCING and not _are_told_by_hash():
            return None

        def make(
            original: Callable[..., object], switch: MethodStandIn, usual: Callable[..., object]
        ) -> Callable[..., Any]:
            return self._make_call(operation, original, switch, usual)

        return make

    def _make_call(  # noqa: C901, PLR0915 - one piece, because every call it makes is paid for
        self,
        operation: Operation,
        original: Callable[..., Any],
        switch: MethodStandIn,
        usual: Callable[..., Any],
    ) -> Callable[..., Any]:
        is_compiling = sys.modules["torch"].compiler.is_dynamo_compiling
        recording, rows, threads = self._recording, self._rows, self._recording.threads
        ring, name, at_args = rows.ring, operation.method, operation.tensors
        counts, reduces = COUNTED.get(name, 1), operation.op in _REDUCING
        next_word, slot_mask, slot_scale = ring.next_word, ring.slot_mask, ring.slot_scale
        buffer, pack_open = ring.buffer, _OPEN_ROW.pack_into
        known, awaited, under_way = self._groups.by_id, rows.awaited, rows.under_way
        line, poll, learn, key_of = rows.callers.line_at, rows.poll_seldom, self._learn, _key_of
        issued, failed, fault = self._issued, self._failed, self._guard.fault
        mark = rows.accelerator.mark
        clock, measure = time.perf_counter_ns, rows.memory.begins

        def method(  # noqa: C901, PLR0912, PLR0915 - the same
            target: object, *args: Any, **kwargs: object
        ) -> Any:
            group = known.get(id(target))
            if group is None or kwargs or not args or not switch.is_on or is_compiling():
                return usual(target, *args, **kwargs)
            try:
                options = args[-1]
                is_async = options.asyncOp
                key: Any = hash(options.reduceOp) if reduces else 0
                if at_args is not None:
                    tensor = args[at_args]
                    if type(tensor) is list and len(tensor) == 1:
                        tensor = tensor[0]
                    if type(tensor) is list:
                        key = key_of(tensor, key)
                    else:
                        key = (tensor.shape, tensor.dtype, tensor.device, key)
            except Exception:  # noqa: BLE001 - called in another way than torch's functions do
                pass_on()
                return usual(target, *args)
            try:
                thread = threads.state
                if thread.is_in_collective:
                    facts = None
                else:
                    start = clock()
                    if under_way:
                        poll(start)
                    try:
                        facts = group.facts[name][key]
                    except KeyError:
                        facts = learn(operation, group, args, key)
                    sizes, texts, device = facts
                    group.count = seq = group.count + 1
                    group.counted += counts
                    number = line(2)
                    word = next_word()
                    at = HEADER_SIZE + (word & slot_mask) * slot_scale
                    mine = thread.collective_facts[is_async]
                    step = recording.step
                    pack_open(buffer, at, word, seq, sizes, start, step, texts, number, mine, word)
                    measure(word, start)
                    begun = mark(device) if rows.is_timed and device is not None else None
                    thread.is_in_collective = True  # last: an interrupt may come before
            except Exception:  # noqa: BLE001 - never harm the host
                fault()
                return original(target, *args)
            if facts is None:
                return original(target, *args)
            try:
                result = original(target, *args)
            except BaseException as error:
                thread.is_in_collective = False
                failed(word, start, error)
                raise
            thread.is_in_collective = False
            try:
                if is_async or result is None:
                    issued(group, word, start, result, device, begun=begun, is_async=is_async)
                else:
                    call = (word, at, start, thread, device)
                    number = id(result)
                    if awaited.setdefault(number, call) is not call or number in under_way:
                        rows.replace(result, call)
            except Exception:  # noqa: BLE001 - never harm the host
                fault()
            return result

        return method

    def make_wait(
        self, original: Callable[..., Any], switch: MethodStandIn, usual: Callable[..., object]
    ) -> Callable[..., Any]:
        """The function for the wait for a work."""
        recording, ring, awaited = self._recording, self._rows.ring, self._rows.awaited
        synchronized, fault = recording.rows.phases.synchronized, self._guard.fault
        buffer, close_at = ring.buffer, ring.layout.close_offset
        still_holds, lap_ns = ring.still_holds, ring.lap_ns
        pack_close, clock = ring.layout.close_struct.pack_into, time.perf_counter_ns
        failed, note = self._failed, self._note_wait
        memory, growth_of = self._rows.memory, self._rows.memory.growth_of

        def method(target: Work, *args: object, **kwargs: object) -> Any:
            call = awaited.pop(id(target), None)
            if call is None:
                return usual(target, *args, **kwargs)
            if not switch.is_on:
                return original(target, *args, **kwargs)
            start = clock()
            try:
                result = original(target, *args, **kwargs)
            except BaseException as error:
                failed(call[0], call[2], error, clock() - start)
                raise
            try:
                now = clock()
                word, at, entered, thread, device = call
                if device is None:
                    if thread.native_id == recording.training_thread:
                        synchronized(start, now)
                    took = now - entered
                    if took < lap_ns or still_holds(word):
                        growth = growth_of(word) if memory.before else NULL_INT
                        pack_close(
                            buffer, at + close_at, NULL_NAME, now - start, NULL_FLOAT, growth, took,
                            word + DONE,
                        )  # fmt: skip
                else:
                    note(call, start, now, target)
            except Exception:  # noqa: BLE001 - never harm the host
                fault()
            return result

        return method

    def _learn(self, operation: Operation, group: Group, args: tuple[Any, ...], key: Any) -> Facts:
        """Calls of a method with such tensors, met for the first time."""
        rows = self._rows
        group.count_from_here()
        tensors = None if operation.tensors is None else args[operation.tensors]
        shapes, dtypes, size = rows.facts_of(tensors)
        reduction = rows.reduction(getattr(args[-1], "reduceOp", None))
        op = rows.op(operation.op)
        facts = (
            _SIZES.pack(size, NULL_INT, NULL_INT),
            _TEXTS.pack(group.name_id, group.size, op, shapes, dtypes, reduction),
            device_of(tensors),
        )
        known = group.facts.setdefault(operation.method, {})
        if len(known) >= _MOST_FACTS:
            known.clear()
        known[key] = facts
        return facts

    def _issued(
        self,
        group: Group,
        word: int,
        start: int,
        work: Work,
        device: Device | None,
        *,
        begun: object,
        is_async: bool,
    ) -> None:
        """Torch has taken one that is not waited for at once, or not by the host."""
        is_on_host = device is None
        call = Call(
            word,
            start,
            group.name_id,
            is_async=is_async,
            is_on_host=is_on_host,
            device=device,
        )
        call.begun = begun
        self._rows.issued(call, work)

    def _failed(self, word: int, start: int, error: BaseException, wait_ns: int = NULL_INT) -> None:
        """It has ended by an exception."""
        call = Call(word, start, is_async=False, is_on_host=False)
        call.wait_ns = wait_ns
        self._guard.run(self._rows.failed, call, error)

    def _note_wait(self, call: Awaited, start: int, now: int, work: Work) -> None:
        """Record the wait for a device collective."""
        recording = self._recording
        if call[3].native_id == recording.training_thread:
            recording.rows.phases.synchronized(start, now)
        self._rows.waited(call_of(call), start, now, work)


def _are_told_by_hash() -> bool:
    """Whether reductions have hashes of their own, whichever object names them."""
    c10d: Any = sys.modules["torch._C._distributed_c10d"]
    found = []
    for name in ("SUM", "MAX", "SUM"):
        options = c10d.AllreduceOptions()
        options.reduceOp = getattr(c10d.ReduceOp, name)
        found.append(hash(options.reduceOp))
    return found[0] == found[2] != found[1]


def _key_of(tensors: list[Any], reduction: int) -> Any:
    """What facts of several tensors are known by."""
    return (
        *[(tensor.shape, tensor.dtype, tensor.device) for tensor in flat_tensors(tensors)],
        reduction,
    )
