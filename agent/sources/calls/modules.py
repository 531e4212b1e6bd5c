"""Records every module call, by standing in for ``torch.nn.Module.__call__``.

Rules of this file: `call` below is the hot path of the whole product; it runs at every module
call of the training. It takes no lock, touches no tensor, allocates nothing that stays, and
whatever goes wrong in it, the user's module is called exactly once and its result or exception
is passed on unchanged. Under torch.compile the first question it asks is answered at compile
time, so that it is not part of the graph and a compiled region is one row.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from ....ring.format import DONE, FAILED, HEADER_SIZE
from ....ring.rows import PlainRows
from ....safety.guard import Guard, pass_on
from ....script.marks import HAS_ENOUGH
from ..data.shapes import Size, new_size_of
from ..memory.sampler import MemorySampler
from ..shared.recording import Recording, RootCall
from ..shared.thread_state import CLOSE_ROW, COLUMNS, MAX_DEPTH, OPEN_ROW, ThreadState
from ..stand_in import made_way
from ..steps.boundary import Boundary
from ..steps.phases import DATA as DATA_PHASE, FORWARD as FORWARD_PHASE
from ..steps.progress import Progress
from ..torch_types import Module
from . import dynamo
from .backward.module_backward import ModuleBackward
from .device_times import FORWARD as DEVICE_FORWARD, DeviceTimes
from .names.module_names import IDS, ModuleNames
from .native_calls import NativeCalls
from .root_calls import RootCalls

_DIRECT_CALL = ("_compiled_call_impl", "_call_impl")
"""The names that torch's own ``Module.__call__`` consists of: it calls the second, unless the
first is set. Where that is so, the wrapper does the same and saves a frame."""


class ModuleCalls:
    """Puts the recording wrapper in place, and takes it away again."""

    def __init__(  # noqa: PLR0917 - all of them are needed at every call
        self,
        recording: Recording,
        progress: Progress,
        memory: MemorySampler,
        boundary: Boundary,
        names: ModuleNames,
        backward: ModuleBackward,
        *,
        in_c: bool = True,
    ) -> None:
        """Begin without the wrapper.

        Args:
            in_c: Whether calls are recorded by the C part, where it was built.
        """
        layout = recording.trace.layout
        layout.require(COLUMNS)
        if (OPEN_ROW.size, CLOSE_ROW.size) != (layout.row_size, layout.close_struct.size):
            raise AssertionError("the packed row no longer matches the table torch_trace")
        self._torch: Any = sys.modules["torch"]
        self._recording = recording
        self._progress = progress
        self._memory = memory
        self._boundary = boundary
        self._names = names
        calls = RootCalls(names, boundary, progress.is_trained)
        self._called, self._size_of = calls.called, new_size_of(in_c=in_c)
        self._backward = backward
        self._set_timer: Callable[[DeviceTimes | None], None] = lambda _: None
        self._native = NativeCalls(recording, memory, names, backward, is_wanted=in_c)
        self._original: Any = None
        self._made: Any = None  # the wrapper, in place or not
        self._wrapper: Any = None  # while it is in place, or another one lies over it
        self.is_on = False
        self.guard = Guard("modules", self.stop)

    def start(self) -> None:
        """Put the wrapper in place; calls in progress are not recorded."""
        module_class = self._torch.nn.Module
        self.is_on = True
        if self._wrapper is None:
            # The one from before a pause will do, for as long as it leads to the same function.
            if self._made is None or module_class.__call__ is not self._original:
                self._original = made_way(module_class.__call__)
                self._made = self._make_wrapper(self._original)
                self._leave_compiled_models_alone()
                self._native.take_over(
                    self._made,
                    self._original,
                    is_direct=self._original.__code__.co_names == _DIRECT_CALL,
                    failed=self._failed_in_c,
                    fault=self._fault,
                )
            self._wrapper = module_class.__call__ = self._made

    def stop(self) -> None:
        """Put the original back; where another wrapper lies over ours, calls just pass through."""
        module_class = self._torch.nn.Module
        self.is_on = False
        if self._wrapper is not None and module_class.__call__ is self._wrapper:
            module_class.__call__ = self._original
            self._wrapper = None

    def close(self) -> None:
        """Stop for good: forget the modules that were met."""
        self.stop()
        self._made = None
        self._native.close()
        self._names.forget_all()

    def remains(self) -> list[str]:
        """What stays in place after `stop`, or would if it came now, one sentence each."""
        if self._wrapper in (None, self._torch.nn.Module.__call__):
            return []
        return [
            "the wrapper of torch.nn.Module.__call__: another one, put over it, calls it. It passes"
            " every call through unchanged."
        ]

    def way(self) -> str:
        """How calls are recorded, for whoever asks."""
        return self._native.way()

    def time_by(self, timer: DeviceTimes | None) -> None:
        """Have calls timed on the device from now on, or no more."""
        self._set_timer(timer)

    def _failed_in_c(self, depth: int, word: int, start: int) -> None:
        """A call that the C part records has ended by the exception in hand."""
        self.guard.run(self._note_failure, depth, word, start)

    def _leave_compiled_models_alone(self) -> None:
        """torch.compile takes the frames that it would take without us, and no others."""
        code = self._made.__code__.replace()  # of its own: what is set for it is set for good
        self._made.__code__ = code
        helpers: tuple[Any, ...] = (
            self._enter_root,
            self._leave_root,
            self._note_failure,
            self.guard.run,
            self._fault,
            self._learn_inside,
            self._backward.attach,
            self._memory.sample,
            PlainRows.still_holds,
            DeviceTimes.entered,
            DeviceTimes.left,
            type(self._recording.threads).__init__,
        )
        dynamo.leave_out(code, [helper.__code__ for helper in helpers])

    def _make_wrapper(  # noqa: C901, PLR0915 - one piece, because every call it makes is paid for
        self, original: Callable[..., object]
    ) -> Callable[..., Any]:
        """The function that stands in for ``Module.__call__``.

        Everything it needs is a local of this function: a closure's cell is read faster than
        an attribute.
        """
        is_compiling = self._torch.compiler.is_dynamo_compiling
        direct = original.__code__.co_names == _DIRECT_CALL
        trace, threads = self._recording.trace, self._recording.threads
        recording, known, memory = self._recording, self._names.known, self._memory
        moment = recording.now
        hooked, hook = self._backward.hooked, self._backward.attach
        fault, enter_root, leave_root = self._fault, self._enter_root, self._leave_root
        learn_inside, run, fail = self._learn_inside, self.guard.run, self._note_failure
        next_word, slot_mask, slot_scale = trace.next_word, trace.slot_mask, trace.slot_scale
        buffer, close_at = trace.buffer, trace.layout.close_offset
        still_holds, lap_ns = trace.still_holds, trace.lap_ns
        pack_open, pack_close = OPEN_ROW.pack_into, CLOSE_ROW.pack_into
        clock = time.perf_counter_ns
        timer: DeviceTimes | None = None

        def set_timer(value: DeviceTimes | None) -> None:
            nonlocal timer
            timer = value
            self._native.run(is_on=value is None)

        self._set_timer = set_timer

        @functools.wraps(original)
        def call(  # noqa: C901, PLR0912 - the same
            self: Any, *args: object, **kwargs: object
        ) -> Any:
            if is_compiling():
                return original(self, *args, **kwargs)
            depth, word, start = -1, 0, 0
            try:
                try:
                    thread = threads.state
                    depth = thread.depth
                    ids: bytes | None
                    if depth:
                        try:
                            ids = known[id(self)]
                        except KeyError:
                            ids = learn_inside(self, thread.root)
                    else:
                        ids = enter_root(self, thread, args, kwargs)
                    if ids:
                        word = next_word()
                        at = HEADER_SIZE + (word & slot_mask) * slot_scale
                        facts = thread.facts[depth if depth < MAX_DEPTH else MAX_DEPTH]  # noqa: FURB136 - faster
                        start = clock()
                        pack_open(buffer, at, word, start, moment.step, ids, facts, word)
                        thread.depth = depth + 1
                        if timer is not None:
                            timer.entered((thread, depth), ids, DEVICE_FORWARD, depth)
                except Exception:  # noqa: BLE001 - never harm the host
                    fault()
                    run(fail, depth, word, start)
                    return original(self, *args, **kwargs)
                if not ids:
                    return original(self, *args, **kwargs)
                if direct and self._compiled_call_impl is None:
                    result = self._call_impl(*args, **kwargs) if kwargs else self._call_impl(*args)
                else:
                    result = original(self, *args, **kwargs)
                thread.depth = depth
                try:
                    now = clock()
                    if timer is not None:
                        timer.left((thread, depth))
                    if now > moment.due_ns:
                        memory.sample()
                    took = now - start
                    if took < lap_ns or still_holds(word):
                        pack_close(buffer, at + close_at, took, moment.bytes, word + DONE)
                    if hooked and (mine := hooked.get(id(self))) is not None:
                        hook(mine, args, kwargs, result, depth, now)
                    if not depth:
                        leave_root(self, thread, result)
                except Exception:  # noqa: BLE001 - never harm the host
                    fault()
            except BaseException:  # the module's own, or an interrupt in the midst of the above
                run(fail, depth, word, start)
                raise
            return result

        return call

    def _enter_root(  # noqa: C901, PLR0912 - each call in it would be paid for in every step
        self, module: Module, thread: ThreadState, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> bytes | None:
        """A module is called from outside any other; returns its numbers, unless it is too early.

        Nothing is recorded either once recording has stopped, in case that somebody has kept the
        wrapper, or a method bound to it.
        """
        recording = self._recording
        if thread.session != recording.session and not self._boundary.admit(module, thread):
            return None
        start = (clock := recording.costs.clock)()
        ids = self._names.known.get(id(module))
        if ids is None:
            ids = self._learn_root(module)
        elif not ids:  # a module without any inside it, such as a loss, that is left out
            return ids
        thread.root = module
        recomputing = (task := self._boundary.task_id()) != -1
        if recomputing or recording.passing or id(module) not in self._backward.hooked:
            self._backward.root_called(id(module), thread, task)
        if thread.entered != (recomputing, module.training):
            thread.enter(recomputing=recomputing, training=module.training)
        if thread.fetches and not thread.recomputing:
            self._enter_fetched(module)
            start = clock()
        elif not (thread.recomputing or thread.is_agents):
            call = self._called(module, ids, (size := self._size_of(args, kwargs))[1])
            if self._progress.ends_before(call, thread):
                recording.safe_points.step_ended()
            if recording.safe_points.waiting:
                recording.safe_points.root_called()
                start = clock()  # that somebody has held the training is no cost
            thread.is_evaluating = self._progress.root_called(call, thread)
            if call.has_parameters:
                thread.root_ids = IDS.pack(*call.ids)
            if thread.native_id == recording.training_thread and not thread.is_evaluating:
                self._enter_forward(call, size, args, kwargs)
            if recording.looks.modules is not None:
                recording.looks.modules.root_called(module, recording.step)
        if took_ns := clock() - start:
            recording.costs.add("modules", took_ns)
        return ids

    def _learn_root(self, module: Module) -> bytes:
        """Name a module that was met outside of any other."""
        ids = self._names.learn_call(module)
        self._backward.met_all()
        self._recording.objects.roots.add(self._names.root_of(module))
        return ids

    def _learn_inside(self, module: Module, root: Module) -> bytes:
        """Name a module that was met inside of a root."""
        ids = self._names.learn_inside(module, root)
        self._backward.met(id(module))
        return ids

    def _enter_fetched(self, module: Module) -> None:
        """A root is called as a batch is made: that is waiting for data, and no forward pass."""
        self._recording.safe_points.torch_called()
        if self._recording.looks.modules is not None:
            self._recording.looks.modules.root_called(module, self._recording.step)

    def _enter_forward(
        self, call: RootCall, size: Size, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """The training thread is in the forward pass from now on."""
        recording, rows, shape = self._recording, self._recording.rows, size[0]
        rows.phases.enter(FORWARD_PHASE, time.perf_counter_ns())
        if shape != rows.shape:
            rows.shape = shape
            self._memory.hurry()
        if call.has_parameters:
            recording.ended_step = None
        rows.called(id(call.root), size, call.has_grad and call.has_parameters)
        recording.objects.inputs.root_called(args, kwargs)

    def _leave_root(self, module: Module, thread: ThreadState, result: object) -> None:
        """The call of a root has ended."""
        recording = self._recording
        start = (clock := recording.costs.clock)()
        thread.root = None
        if recording.looks.modules is not None:
            recording.looks.modules.root_left(module)
        if not (thread.recomputing or thread.is_agents or thread.fetches):
            if thread.is_evaluating or thread.native_id != recording.training_thread:
                self._leave_phase(thread)
            else:
                self._backward.roots.root_left(module, result)
                recording.rows.phases.leave(time.perf_counter_ns())
            if self._progress.is_inference:
                self._progress.root_left(module, thread)
            if recording.collectives is not None:
                recording.collectives.rows.poll_seldom(time.perf_counter_ns())
        if took_ns := clock() - start:
            recording.costs.add("modules", took_ns)

    def _leave_phase(self, thread: ThreadState, *, failed: bool = False) -> None:
        """The training thread is no longer in the forward pass."""
        if thread.is_evaluating:
            thread.is_evaluating, self._recording.ended_step = False, None
            self._progress.evaluated()
        elif thread.native_id == self._recording.training_thread:
            self._recording.rows.phases.leave(time.perf_counter_ns())
            if failed:
                self._recording.rows.call_failed()
                self._progress.counted.inferring = None

    def _note_failure(self, depth: int, word: int, start: int) -> None:
        """Close the row of a call that has ended by an exception, which goes on to the caller.

        Args:
            depth: At which it was called; negative where it had not even come to know that.
            word: Its row; 0 where it has none.
        """
        if depth < 0:
            return
        thread = self._recording.threads.state
        thread.depth = depth
        if self._recording.ooms is not None:
            self._recording.ooms.raised(DATA_PHASE if thread.fetches else FORWARD_PHASE)
        if not depth and thread.root is not None:
            root, thread.root = thread.root, None
            if not (thread.recomputing or thread.is_agents or thread.fetches):
                self._leave_phase(thread, failed=True)
            if self._recording.looks.modules is not None:
                self._recording.looks.modules.root_left(root, failed=True)
        if self.is_on and word:
            took = time.perf_counter_ns() - start
            close = self._recording.trace.close_row
            has_enough = thread.recomputing and type(sys.exc_info()[1]).__name__ == HAS_ENOUGH
            state = DONE if has_enough else FAILED
            self.guard.run(close, word, state, took, self._memory.bytes)

    def _fault(self) -> None:
        """Note the exception in hand, unless it is that of a call which ends after we have gone."""
        if self.is_on:
            self.guard.fault()
        else:
            pass_on()
