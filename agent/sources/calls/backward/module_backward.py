"""Records the backward pass of modules, by hooks on the nodes of autograd's graph.

Rules of this file: runs in whichever thread autograd calls hooks in: that of `backward()` for the
CPU, one per device for accelerators. A hook looks at no gradient and returns None. Nothing of the
user's is kept alive: a node knows of us, we know of no node.

A module's backward begins when the gradient of its output is complete, and ends when that of its
input is, or when that of a module which it does not contain begins, or with the whole pass. Where
its input is the output of another hooked module, both are the same moment, and one hook does.
A hook costs far more than its own instructions, which autograd's work has driven out of the
caches: the fewer, the better. torch's own ``Tensor.register_hook`` makes
a dictionary and a handle for each tensor. What is done here instead is what it does inside: one
dictionary per module, made once, is handed to each node (``_register_hook_dict``).

Where the C part records calls, it does all of this as well, for every module; what stands here in
Python writes the same rows, for an installation without it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .....ring.format import DONE, HEADER_SIZE
from .....safety.guard import Guard
from ...memory.sampler import MemorySampler
from ...shared.recording import Recording
from ...shared.thread_state import CLOSE_ROW, MAX_DEPTH, OPEN_ROW, ThreadState
from .. import dynamo
from ..device_times import BACKWARD as DEVICE_BACKWARD, DeviceTimes
from ..names.module_names import ModuleNames
from .graph_nodes import nodes_given, nodes_of, sequence_nr
from .hooked import Hook, Hooked, Open
from .new_nodes import Ends, NewNodes
from .pass_roots import PassRoots

_SPARE_CARRIERS = 8
_MOST_BEGUN = 4096


class _Carriers(threading.local):
    """What one thread hooks graphs with.

    Attributes:
        tensor: That by which dictionaries are handed to nodes.
        begun: The sequence numbers of nodes at which the backward of a hooked module begins, of
            calls since the last pass; no number is used twice in a thread.
    """

    def __init__(self) -> None:
        self.tensor: Any = None
        self.begun: set[int] = set()


class ModuleBackward:
    """Hooks the graphs that modules make.

    Attributes:
        hooked: By ``id(module)``: the modules whose graphs are hooked now. C adds each one that it
            meets; None for one whose backward is the whole pass.
        in_c: The C part, once graphs are hooked by it.
        count: Tells how many modules' backward passes are under way in a thread.
        close_down_to: Called with a thread and how many of its modules' passes were under way
            around one of its own, which has ended; and whether that was the outermost.
        spent_ns: What hooking and the hooks have taken so far in Python, by their own clocks.
        is_resting: Whether C hooks no graphs in this step, but for one that is timed on the device.
        is_timed: Whether the step is timed on the device.
        nodes: Which nodes may be hooked.
        roots: Which roots a whole pass goes through.
        timed: Put into `hooked` for a module, it has the recording of its calls timed instead: what
            the wrapper does once the module has returned, for the rest could not be timed without
            another look at the clock in every call.
        exits: How many calls have been timed so.
        exits_ns: How long those took, together.
    """

    def __init__(self, recording: Recording, memory: MemorySampler, names: ModuleNames) -> None:
        self.hooked: dict[int, Any] = {}
        self.in_c: Any = None
        self.count: Callable[[ThreadState], int] = self._count
        self.close_down_to: Callable[[ThreadState, int, bool], None] = self._close_down_to
        self.spent_ns = 0
        self.timed = Hooked(b"", "")
        self.exits = self.exits_ns = 0
        self._torch: Any = sys.modules["torch"]
        self._recording = recording
        self._memory = memory
        self._names = names
        self.nodes = NewNodes(recording)
        self.roots = PassRoots(recording, names, self.watch)
        self._carriers = _Carriers()
        self._is_on = self.is_resting = self.is_timed = False
        self._timer: DeviceTimes | None = None
        # A mode of torch would see what is asked of a tensor; not every torch can tell.
        core = self._torch._C
        self._is_mode_on = getattr(core, "_is_torch_function_mode_enabled", lambda: False)
        self._unseen: Any = core.DisableTorchFunction
        # Made in a thread of no dispatch modes, which would see it being made.
        self._spare = [self._make_carrier() for _ in range(_SPARE_CARRIERS)]
        self._elsewhere: list[list[Open]] = []  # of the threads that work for a pass of another
        self.guard = Guard("backward of modules", self.stop)

    def start(self) -> None:
        """Hook from now on."""
        hooks: tuple[Any, ...] = self._make_hooks(Hooked(b"", ""))
        called: tuple[Any, ...] = (self._make_met, self._take_carrier, self._attach_unseen)
        dynamo.leave_out_with_calls([hook.__code__ for hook in (*hooks, *called)])
        self._is_on = True
        self._run()

    def stop(self) -> None:
        """Hook no more; hooks that are in place do nothing."""
        self._is_on = False
        self._run()
        self.hooked.clear()

    def rest(self, *, is_resting: bool) -> None:
        """Have C leave graphs alone from now on, or hook them again; hooks in place go on."""
        self.is_resting = is_resting
        self._run()

    def _run(self) -> None:
        if self.in_c is not None:
            rests = self.is_resting and self._timer is None
            self.in_c.run_backward(is_on=self._is_on, rests=rests)

    def hand_to_c(self, in_c: Any) -> None:
        """Have graphs hooked by the C part, which records the calls, from now on."""
        self.in_c = in_c
        self.count, self.close_down_to = in_c.backward_count, in_c.close_backward
        in_c.hook_backward(
            tensor=self._torch.Tensor,
            hook=_hook_for_compilers,
            hooked=self.hooked,
            make=self._make_met,
            carrier=self._take_carrier,
            is_mode_on=self._is_mode_on,
            without_modes=self._attach_unseen,
            fault=self.guard.fault,
            passing=self._recording.passing,
            newest=self.nodes.newest,
            is_walked=self.nodes.is_walked,
        )
        self.time_by(self._timer)

    def root_called(self, module: int, thread: ThreadState, task: int) -> None:
        """A root is about to be called; of the others see `NewNodes.root_called`."""
        if module not in self.hooked:
            self.met(module)
        if task != -1 or self._recording.passing:
            self.nodes.root_called(thread, task)

    def met(self, module: int) -> None:
        """The wrapper records calls of a module by itself, past the C part, which hooks all."""
        if self.in_c is not None and module not in self.hooked:
            self.hooked[module] = self._make_met(module)

    def met_all(self) -> None:
        """The same of every module, while the device is timed: then all calls are the wrapper's."""
        if self.in_c is not None and self._timer is not None:
            for module in list(self._names.known):
                self.met(module)

    def time_by(self, timer: DeviceTimes | None) -> None:
        """Have passes timed on the device from now on, or no more."""
        self._timer, self.is_timed = timer, timer is not None
        if self.in_c is not None:
            entered, left = (None, None) if timer is None else (timer.entered, timer.left)
            self.in_c.time_backward(entered, left)
            self._run()
            self.met_all()

    def make(self, ids: bytes, path: str) -> Any:
        """A module that can be put into `hooked`."""
        if self.in_c is not None:
            return self.in_c.Hooked(ids, path)
        hooked = Hooked(ids, path)
        hooked.starts[0], hooked.ends[0] = self._make_hooks(hooked)
        return hooked

    def attach(  # noqa: PLR0917 - called at every hooked call
        self,
        hooked: Any,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
        depth: int,
        returned_ns: int,
    ) -> None:
        """Hook the graph that a module's call has made.

        Args:
            returned_ns: When the module has returned.
        """
        start = time.perf_counter_ns()
        if hooked is self.timed:
            self.exits += 1
            self.exits_ns += start - returned_ns
        elif self._is_mode_on():
            self._attach_unseen(hooked, args, kwargs, result, depth)
        elif self.in_c is not None:
            self.in_c.attach(hooked, args, kwargs, result, depth)
        else:
            self._attach(hooked, args, kwargs, result, depth)
            self.spent_ns += time.perf_counter_ns() - start

    def watch(self, hooks: dict[int, Hook], nodes: list[Any]) -> bool:
        """Have nodes of autograd's graph call hooks that are no module's; whether they all do."""
        carrier = self._carriers.tensor
        if carrier is None:
            carrier = self._carriers.tensor = self._take_carrier()
        thread, passes = self._recording.threads.state, self._recording.now.passes
        found = self.nodes.chosen(thread, Ends(nodes, [], None), passes).outputs
        with self._unseen():
            has_all = self.nodes.hand_over(carrier, hooks, found, passes)
        return has_all and len(found) == len(nodes)

    def _attach_unseen(
        self,
        hooked: Any,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
        depth: int,
    ) -> None:
        """The same, while modes of torch would see it."""
        with self._unseen():
            attach = self._attach if self.in_c is None else self.in_c.attach
            attach(hooked, args, kwargs, result, depth)

    def _attach(
        self,
        hooked: Hooked,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
        depth: int,
    ) -> None:
        """The same, in Python."""
        outputs = nodes_of(result, self._torch.Tensor)
        if not outputs:
            return
        carriers = self._carriers
        carrier, begun = carriers.tensor, carriers.begun
        if carrier is None:
            carrier = carriers.tensor = self._take_carrier()
        if len(begun) > _MOST_BEGUN:
            begun.clear()
        hooked.depth = depth
        thread, passes = self._recording.threads.state, self._recording.now.passes
        inputs = nodes_given(args, kwargs, self._torch.Tensor)
        # The last that the pass comes to: the first that was made.
        last = min(inputs, key=sequence_nr) if inputs else None
        ends = Ends(outputs, inputs, None if last in outputs else last)
        outputs, _, last = self.nodes.chosen(thread, ends, passes)
        if not self.nodes.hand_over(carrier, hooked.starts, outputs, passes):
            return
        if last is not None and last._sequence_nr() not in begun:
            self.nodes.hand_over(carrier, hooked.ends, [last], passes)
        begun.update([node._sequence_nr() for node in outputs])

    def _close_down_to(self, thread: ThreadState, floor: int, is_outermost: bool) -> None:  # noqa: FBT001 - as in C
        """A pass has ended, and with it whatever it had begun."""
        if not (self.hooked or thread.backward or self._elsewhere):
            return
        now = time.perf_counter_ns()
        self._close(thread.backward, floor, now)
        if is_outermost:
            self._carriers.begun.clear()  # kept on, thousands of numbers would come and go
            stacks, self._elsewhere = self._elsewhere, []
            for stack in stacks:
                self._close(stack, 0, now)

    def innermost(self, thread: ThreadState) -> bytes | None:
        """The numbers of the innermost module whose backward pass is under way; None without."""
        if self.in_c is not None:
            ids: bytes | None = self.in_c.backward_inside(thread)
            return ids
        stacks = [thread.backward[thread.floor :], *reversed(self._elsewhere)]
        return next((stack[-1].hooked.ids for stack in stacks if stack), None)

    def _count(self, thread: ThreadState) -> int:
        """See `count`."""
        return len(thread.backward)

    def _make_met(self, key: int) -> Any:
        """What hooks a module that the C part has met; None where the whole pass is its."""
        ids = self._names.known.get(key)
        if not ids or ids in self._names.with_parameters:
            return None
        return self.make(ids, self._names.place_of(key))

    def _take_carrier(self) -> Any:
        """What a thread hands hooks to nodes by."""
        return self._spare.pop() if self._spare else self._make_carrier()

    def _make_carrier(self) -> Any:
        """A tensor that nothing is computed with."""
        return self._torch.empty(0, device="cpu", requires_grad=True)

    def _close(self, stack: list[Open], floor: int, now_ns: int) -> None:
        """Complete the rows of a stack down to a place."""
        memory = self._memory
        if now_ns > memory.due_ns:
            memory.sample()
        while len(stack) > floor:
            self._complete(stack.pop(), now_ns)

    def _complete(self, ended: Open, now_ns: int) -> None:
        """Complete one row."""
        trace, (_, word, at, start_ns) = self._recording.trace, ended
        if self._timer is not None:
            self._timer.left(word)
        took = now_ns - start_ns
        if took < trace.lap_ns or trace.still_holds(word):
            at += trace.layout.close_offset
            CLOSE_ROW.pack_into(trace.buffer, at, took, self._memory.bytes, word + DONE)

    def _make_hooks(self, hooked: Hooked) -> tuple[Hook, Hook]:
        """The hook of a module's outputs and that of its input."""
        began, finished, fault = self._began, self._finished, self.guard.fault
        # To who compiles a backward pass they are what `_hook_for_compilers` is.
        is_compiling: Callable[[], bool] = self._torch.compiler.is_dynamo_compiling

        def at_output(_: object) -> None:
            if self._is_on and not is_compiling():
                try:
                    began(hooked)
                except Exception:  # noqa: BLE001 - never harm the host
                    fault()

        def at_input(_: object) -> None:
            if not is_compiling():
                try:
                    finished(hooked)
                except Exception:  # noqa: BLE001 - never harm the host
                    fault()

        return at_output, at_input

    def _began(self, hooked: Hooked) -> None:
        """The gradient of a module's output is complete."""
        now = start = time.perf_counter_ns()
        recording = self._recording
        thread, trace = recording.threads.state, recording.trace
        stack, floor, fresh = thread.backward, thread.floor, thread.fresh
        top = place = len(stack)
        if not (place or thread.passes):
            self._elsewhere.append(stack)
        # Modules whose outputs come from the same node begin at once, the innermost first.
        while fresh and place > floor and stack[place - 1].hooked.path.startswith(hooked.inside):
            place, fresh = place - 1, fresh - 1
            start = stack[place].start_ns
        if place == top:
            while place > floor and not hooked.path.startswith(stack[place - 1].hooked.inside):
                place -= 1
            if place < top:
                self._close(stack, place, now)
                thread.fresh = 0
        elif place > floor and stack[place - 1].hooked is hooked:  # its next call, made before
            place -= 1
            self._complete(stack.pop(place), start)
        word = trace.next_word()
        at = HEADER_SIZE + (word & trace.slot_mask) * trace.slot_scale
        facts = thread.backward_facts[min(hooked.depth, MAX_DEPTH)]
        OPEN_ROW.pack_into(trace.buffer, at, word, start, recording.step, hooked.ids, facts, word)
        stack.insert(place, Open(hooked, word, at, start))
        thread.fresh += 1
        if self._timer is not None:
            self._timer.entered(word, hooked.ids, DEVICE_BACKWARD, hooked.depth)
        self.spent_ns += time.perf_counter_ns() - now

    def _finished(self, hooked: Hooked) -> None:
        """The gradient of a module's input is complete."""
        now = time.perf_counter_ns()
        thread = self._recording.threads.state
        stack = thread.backward
        for place in range(len(stack) - 1, thread.floor - 1, -1):
            if stack[place].hooked is hooked:
                self._close(stack, place, now)
                thread.fresh = 0
                break
        self.spent_ns += time.perf_counter_ns() - now


def _hook_for_compilers(_gradient: object, _place: object = None) -> None:
    """What a hook of the C part is to whoever compiles a backward pass: nothing.

    C runs in its place; a pass that is compiled as a whole is one row, as a compiled module is.
    """
