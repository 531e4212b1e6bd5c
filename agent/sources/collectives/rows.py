"""Writes the rows of python.collectives: opened at a call, completed when its work has ended.

Rules of this file: runs in the threads that call, and holds no tensor. A work of the program's is
held by weak reference; one of torch's own, which it waits for itself, until it has ended. Nothing
is ever called back by torch from another thread: at the end of the process that would not return.

NCCL gives no work for what its caller waits for at once: the call returns as it is queued on the
device. There a mark is set behind it in the same queue, and it has ended once the device is past
that. While a graph is captured nothing is marked or asked: its row ends as it is queued.
"""

from __future__ import annotations

import threading
import time
import weakref
from types import FrameType
from typing import Any

from ....ring.format import DONE, FAILED, NULL_FLOAT, NULL_INT
from ....ring.writer import RingWriter
from ....safety.guard import pass_on
from ..accelerator import Accelerator, Owned, is_capturing
from ..shared.recording import Recording
from ..torch_types import Tensor, Work
from .call_memory import CallMemory
from .call_tensors import flat_tensors
from .callers import Callers
from .catching.operations import Operation
from .entered import Awaited, Call, call_of
from .groups import Group

_MOST_TENSORS = 8
_MOST_FACTS = 4096
_MOST_SHAPES = 16_384
"""How many texts of shapes are kept apart: the parts of an all_to_all may be others each time."""
_MOST_POLLED = 64
_POLL_NS = 1_000_000
COUNTED = {"monitored_barrier": 2, "reduce_scatter": 2}
"""How far a backend may count at the most, where it is not by one."""
_ERROR_CHARS = 300
ABORTED = "its process group was aborted before it had ended"


class CollectiveRows:
    """Writes them.

    Attributes:
        ring: Where they are.
        memory: By how much the memory in use grows in some of them.
        callers: Finds the lines of the program.
        under_way: By ``id(work)``: calls whose work has not been seen to end.
        awaited: By ``id(work)``: those that the program waits for at once; see `hot_path`.
        is_timed: Whether calls on a device are timed there.
        gathered: Calls of this thread that torch only gathers; None where it does not.
    """

    def __init__(
        self,
        recording: Recording,
        ring: RingWriter,
        accelerator: Accelerator,
        memory: CallMemory,
    ) -> None:
        self.memory = memory
        self._recording = recording
        self.ring = ring
        self.accelerator = accelerator
        self.is_timed = False
        self.callers = Callers(recording.names)
        self._owned = Owned()
        self._facts: dict[Any, tuple[int, int, int]] = {}
        self._shapes_left = _MOST_SHAPES
        self._reductions: dict[Any, int] = {}
        self._ops: dict[str, int] = {}
        self.under_way: dict[int, Call] = {}
        self.awaited: dict[int, Awaited] = {}
        self._gathering = threading.local()
        self._poll_ns = 0

    @property
    def gathered(self) -> list[Call] | None:
        """See above."""
        found: list[Call] | None = getattr(self._gathering, "calls", None)
        return found

    @gathered.setter
    def gathered(self, calls: list[Call] | None) -> None:
        self._gathering.calls = calls

    def open(
        self,
        operation: Operation,
        group: Group,
        tensors: Any,
        frame: FrameType | None,
        *,
        reduce_op: object = None,
        root: int | None = None,
        peer: int | None = None,
        is_async: bool = False,
    ) -> Call:
        """A collective is entered.

        Args:
            tensors: A tensor, a list of them, a list of lists, or None.
            frame: Where to look for the line of the program, from there outwards.
        """
        start = time.perf_counter_ns()
        if self.under_way:
            self.poll_seldom(start)
        seq = _next_number(operation, group, peer)
        shapes, dtypes, size = self.facts_of(tensors)
        recording, ranks = self._recording, group.ranks
        word = self.ring.open_row(
            seq,
            size,
            NULL_INT if root is None else ranks[root],
            NULL_INT if peer is None else ranks[peer],
            start,
            recording.step,
            group.name_id,
            group.size,
            self.op(operation.op),
            shapes,
            dtypes,
            self.reduction(reduce_op),
            self.callers.line(frame),
            recording.threads.state.native_id,
            is_async,
        )
        self.memory.begins(word, start)
        call = Call.of(word, start, group.name_id, tensors, is_async=is_async)
        if self.is_timed and call.device is not None:
            call.begun = self.accelerator.mark(call.device)
        return call

    def issued(self, call: Call, work: Any, *, is_own: bool = False) -> None:
        """Torch has taken it.

        Args:
            work: What can be waited for; None where the host has done it, or a device will.
            is_own: Whether torch itself waits for it, and nobody else holds the work.
        """
        if work is None:
            if self.gathered is None:
                now = time.perf_counter_ns()
                if call.device is not None:  # the program goes on; its device waits
                    call.wait_ns = now - call.start_ns
                self._follow(call, now)
            else:
                self.gathered.append(call)
            return
        if is_capturing():  # it is only written down, and done whenever the graph is
            self._close(call, time.perf_counter_ns())
            return
        if is_own:
            self._owned.keep(work)
            call.work = lambda: work
        elif call.is_async:
            call.work = weakref.ref(work)
        awaited = self.awaited.pop(id(work), None)
        if awaited is not None:
            self._close(call_of(awaited), call.start_ns)
        self._put(id(work), call)

    def issue_gathered(self, work: Work) -> None:
        """Torch has taken all that it had gathered, and gives one work for it."""
        calls, self.gathered = self.gathered or [], None
        if calls:
            calls[0].together, calls[0].is_async = tuple(calls[1:]), True
            self.issued(calls[0], work)

    def fail_gathered(self, error: BaseException) -> None:
        """It has refused that."""
        calls, self.gathered = self.gathered or [], None
        for call in calls:
            self.failed(call, error)

    def failed(self, call: Call, error: BaseException) -> None:
        """It has ended by an exception."""
        self._fail(call, f"{type(error).__name__}: {error}".replace("\n", " ")[:_ERROR_CHARS])

    def _fail(self, call: Call, text: str) -> None:
        """It has ended, and not as it should."""
        now, number = time.perf_counter_ns(), self._number(text)
        for one in (call, *call.together):
            took = now - one.start_ns
            growth = self.memory.growth_of(one.word)
            self.ring.close_row(one.word, FAILED, number, call.wait_ns, NULL_FLOAT, growth, took)

    def waited(self, call: Call, start_ns: int, now_ns: int, work: Work) -> None:
        """The program has waited for it, which is over but on a device."""
        call.wait_ns = now_ns - start_ns
        self._owned.release(work)
        if is_capturing() or work.is_completed():
            self._close(call, now_ns)
        else:  # a device has yet to do it
            self._follow(call, now_ns)

    def stop_group(self, group: int) -> list[Call]:
        """A group is about to be aborted: its calls that are under way will not be done."""
        self.poll(time.perf_counter_ns())
        keys = [key for key, call in self.under_way.items() if call.group == group]
        return [call for key in keys if (call := self.under_way.pop(key, None)) is not None]

    def aborted(self, calls: list[Call]) -> None:
        """It has been: a device is past them all the same."""
        for call in calls:
            self._fail(call, ABORTED)
            self._let_go(call)

    def forget(self) -> None:
        """Complete nothing any more."""
        for call in self.under_way.values():
            self._let_go(call)
        self.under_way.clear()
        self.awaited.clear()

    def replace(self, work: Work, call: Awaited) -> None:
        """A work lies where those lay that are gone, whose rows are completed."""
        left, gone = self.awaited[id(work)], self.under_way.pop(id(work), None)
        self.awaited[id(work)] = call
        if left is not call:
            self._close(call_of(left), call[2])
        if gone is not None:
            self._close(gone, call[2])

    def poll_seldom(self, now_ns: int) -> None:
        """As `poll`, unless that was done just now: asking the works costs time."""
        if now_ns - self._poll_ns > _POLL_NS:
            self._poll_ns = now_ns
            self.poll(now_ns)

    def poll(self, now_ns: int) -> None:
        """Complete the rows of works that have ended, as far as that can be seen."""
        if is_capturing():
            return
        asked, behind = 0, set[Any]()
        for key, call in self.under_way.copy().items():
            if call.reached is not None and call.reached.lane not in behind:
                is_over, failure = call.reached.is_here(), None
                behind.update(() if is_over else (call.reached.lane,))
            elif call.reached is None and call.work is not None:
                work = call.work()
                is_over = work is None or _is_over(work, call)
                failure = _failure_of(work, call) if is_over else None
            else:
                continue
            asked += 1
            if is_over and self.under_way.pop(key, None) is not None:
                if failure is None:
                    self._close(call, now_ns)
                else:
                    self.failed(call, failure)
                self._let_go(call)
            if asked >= _MOST_POLLED:
                break

    def _follow(self, call: Call, now_ns: int) -> None:
        """It is in the queue of a device, at the end of what is there so far."""
        call.work = None
        on_device = call.device is not None
        call.reached = self.accelerator.mark(call.device) if on_device else None
        if call.reached is None:
            self._close(call, now_ns)
        else:
            self._recording.rows.used()  # so that its end is seen though there be no steps
            self._put(id(call), call)

    def _put(self, key: int, call: Call) -> None:
        """It is under way; what had its number before is gone."""
        left, self.under_way[key] = self.under_way.get(key), call
        if left is not None:
            self._close(left, call.start_ns)

    def _let_go(self, call: Call) -> None:
        """Its work is not needed any more."""
        work = call.work() if call.work is not None else None
        if work is not None:
            self._owned.release(work)

    def _close(self, call: Call, now_ns: int) -> None:
        """Its row is complete, and so are those that ended with it."""
        device_s = NULL_FLOAT
        if call.begun is not None and call.reached is not None and not call.together:
            seconds = self.accelerator.between(call.begun, call.reached)
            device_s = NULL_FLOAT if seconds is None else seconds.value()
        for one in (call, *call.together):
            growth, took = self.memory.growth_of(one.word), now_ns - one.start_ns
            self.ring.close_row(one.word, DONE, 0, call.wait_ns, device_s, growth, took)

    def facts_of(self, tensors: Any) -> tuple[int, int, int]:
        """The numbers of the texts of shapes and types, and the bytes."""
        if tensors is None:
            return 0, 0, 0
        flat = flat_tensors(tensors)
        key = tuple([(tensor.shape, tensor.dtype) for tensor in flat])
        facts = self._facts.get(key)
        if facts is None:
            facts = self._tell(flat)
            if len(self._facts) >= _MOST_FACTS:
                self._facts.clear()
            self._facts[key] = facts
        return facts

    def _tell(self, tensors: list[Tensor]) -> tuple[int, int, int]:
        """The same, for what was not met before."""
        shapes = [str(list(tensor.shape)).replace(" ", "") for tensor in tensors[:_MOST_TENSORS]]
        if len(tensors) > _MOST_TENSORS:
            shapes.append("...")
        dtypes = dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        text = ";".join(shapes)
        if not self._recording.names.has(text):
            text = text if self._shapes_left else ""
            self._shapes_left = max(0, self._shapes_left - 1)
        return self._number(text), self._number(";".join(dtypes)), size

    def reduction(self, reduce_op: object) -> int:
        """The number of a reduction's name; that of NULL for none."""
        if reduce_op is None:
            return 0
        kind = getattr(reduce_op, "op", reduce_op)
        number = self._reductions.get(kind)
        if number is None:
            name = getattr(kind, "name", None) or str(kind).rpartition(".")[2]
            number = self._reductions[kind] = self._number(name.lower())
        return number

    def op(self, op: str) -> int:
        """The number of an operation's name."""
        number = self._ops.get(op)
        if number is None:
            number = self._ops[op] = self._number(op)
        return number

    def _number(self, text: str) -> int:
        """The number of a text; that of NULL for none."""
        return self._recording.names.intern(text) if text else 0


def _is_over(work: Work, call: Call) -> bool:
    """Whether a work has ended.

    On the host its future tells first, on a device the future is done as the work is queued.
    """
    if call.is_on_host:
        try:
            return bool(work.get_future().done())
        except RuntimeError:  # of a kind that has none
            pass_on()
    return bool(work.is_completed())


def _failure_of(work: Work, call: Call) -> Exception | None:
    """What a work on the host has failed with that nobody has waited for, by its future."""
    if work is None or not call.is_on_host:
        return None
    try:
        future = work.get_future()
    except RuntimeError:  # of a kind that has none
        pass_on()
        return None
    if not future.done():
        return None
    try:
        future.value()
    except Exception as error:  # noqa: BLE001 - whatever it was
        return error
    return None


def _next_number(operation: Operation, group: Group, peer: int | None) -> int:
    """The number of a collective in its group, or of a message between two ranks."""
    group.count_from_here()
    if operation.op in {"send", "recv"}:
        return _next_message(group, operation.op, peer)
    group.count += 1
    group.counted += COUNTED.get(operation.method, 1)
    return group.count


def _next_message(group: Group, op: str, peer: int | None) -> int:
    group.counted += 1
    if peer is None:
        return NULL_INT
    counts = group.sent if op == "send" else group.received
    counts[peer] = number = counts.get(peer, 0) + 1
    return number
