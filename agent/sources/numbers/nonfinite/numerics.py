"""Finds the module that made the first values that are not finite, forwards and backwards.

Rules of this file: loaded only when somebody asks for it. Runs in the training thread, but for the
hooks on gradients, which autograd calls in its own threads. What looks at a tensor waits for its
device. A hook returns None, so that every number of the training stays as it was; a fault of ours
ends the watch.

A module is a *producer* when what it was given is finite and what it made is not, unless a module
inside it did that. Forwards the first such call is known as it ends. Backwards, tensors between two
modules belong to both, so what happened is sorted out when the pass has ended.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from .....messages.common import Armed
from .....ring.writer import RingWriter
from .....safety.guard import Guard
from ....on_demand.armed_job import ArmedJob
from ...shared.recording import Recording
from ...torch_types import Tensor
from .bad_weights import bad_buffers, bad_weights
from .findings import Findings
from .finite import Bad, first_bad, largest_of, look_at, shape_of, tensors_in
from .finite_hooks import Hooks, Watched
from .gradient_origin import GradientOrigin
from .watched_calls import WatchedCall

_MOST_TOLD = 32
"""Of the rows, parameters that were not finite before the watch."""
_MOST_CALLS = 200_000


class NumericsWatch(ArmedJob):
    """Watches some steps, by hooks that go at the end of a step only."""

    what = "nan"

    def __init__(self, recording: Recording, ring: RingWriter, steps: int, number: int) -> None:
        super().__init__(number, steps)
        self.guard = Guard("numerics", self.end)
        self._recording = recording
        self._findings = Findings(recording, ring, number)
        self._origin = GradientOrigin(recording, self._findings)
        self._hooks = Hooks(recording, self)
        self._modules = 0
        self._thread = 0
        self._calls: list[WatchedCall] = []
        self._stack: list[WatchedCall] = []
        self._tensor_handles: list[Any] = []
        self._events = 0
        self._is_on = False
        self._is_ended = False
        self._bad_before: dict[int, tuple[Watched, Bad]] = {}
        self._lock = threading.RLock()

    def armed(self) -> Armed:
        """How far it is; its last step is that of the finding, or the last that was watched."""
        self.found, self.last_step = self._findings.count, self._findings.step
        if self.last_step is None and self.first_step is not None and self.done:
            self.last_step = self.first_step + self.done - 1
        return super().armed()

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        notes = []
        if self._hooks.compiled:
            notes.append(_listed(self._hooks.compiled, "compiled: watched only at the border"))
        if self._hooks.closed:
            notes.append(_listed(self._hooks.closed, "not watched, since a hook would change it"))
        return tuple(notes)

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        self.moved_s = time.monotonic()
        with self._lock:
            if self.state == "armed":
                self.done += 1
            self._forget_step()
            if self._is_ended or self._findings.count or (self._is_on and self.done >= self.steps):
                self._take_off("over")
            elif self.state == "waiting":
                self._put_on()
            return not self._is_on

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        with self._lock:
            self._take_off("failed")
            self.reason = reason

    def end(self) -> None:
        """See no more; the hooks go at the end of the step in progress."""
        with self._lock:
            self._is_ended = True
            if self.state == "waiting":
                self.state = "over"

    def wait_off(self, timeout_s: float) -> None:
        """Wait for the hooks to be gone; if the training does not move, take them off here."""
        end = time.monotonic() + timeout_s
        while self._is_on and time.monotonic() < end:
            time.sleep(0.01)
        with self._lock:
            self._take_off("over")

    def entered(
        self, watched: Watched, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """See `Watcher`."""
        if self._is_on and threading.get_ident() == self._thread:
            self._run(self._enter, watched, args, kwargs)

    def left(
        self, watched: Watched, args: tuple[object, ...], kwargs: dict[str, object], result: object
    ) -> None:
        """See `Watcher`."""
        if self._is_on and threading.get_ident() == self._thread:
            self._run(self._leave, watched, result)

    def loss_came(self, args: tuple[object, ...]) -> None:
        """A backward pass begins."""
        if self._is_on:
            self._run(self._look_at_loss, args)

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        if self._is_on:
            self._run(self._sort_out)

    def _run(self, action: Any, *args: object) -> None:
        """Do something that must not fail the training; a fault ends the watch."""
        faults = self.guard.faults
        if not self._is_ended:
            self.guard.run(action, *args)
        if self.guard.faults > faults:
            self._is_ended = True
            self.state = "failed"
            self.reason = self.guard.last.strip().rpartition("\n")[2]

    def _put_on(self) -> None:
        """Begin, between two steps: weights that are not finite now are no module's doing."""
        roots = self._recording.objects.roots.alive()
        self._bad_before = bad_weights(self._recording, roots)
        self._bad_before |= bad_buffers(self._recording, roots)
        self._thread = threading.get_ident()
        self.first_step, self.state, self._is_on = self._recording.step, "armed", True
        self._recording.looks.numerics = self
        self._modules = self._hooks.put_on()

    def _take_off(self, state: str) -> None:
        """End; the modules are as before."""
        self.state = state if self.state not in {"over", "failed"} else self.state
        self._is_ended = True
        if self._is_on:
            self._is_on = False
            if self._recording.looks.numerics is self:
                self._recording.looks.numerics = None
            self._hooks.take_off()
        self._bad_before = {}
        self._forget_step()

    def _forget_step(self) -> None:
        """A step is over: its hooks on tensors go, and what is known of its calls."""
        for handle in self._tensor_handles:
            handle.remove()
        self._tensor_handles.clear()
        self._calls.clear()
        self._stack.clear()

    def _enter(self, watched: Watched, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """A module is called."""
        if watched.is_root:
            self._stack.clear()  # what is left of a call that an exception ended
        parent = self._stack[-1] if self._stack else None
        call = WatchedCall(watched, parent)
        call.given = tensors_in(args) + tensors_in(kwargs)
        call.shapes = ", ".join(shape_of(tensor) for _, tensor in call.given[:4])
        self._stack.append(call)
        bad = first_bad(call.given)
        if bad is not None:
            call.is_clean = False
            if not self._findings.count:
                self._tell_origin(call, parent, bad)
        elif not self._findings.count:
            self._hook_gradients(call, call.given, is_output=False)

    def _tell_origin(self, call: WatchedCall, parent: WatchedCall | None, bad: Bad) -> None:
        """The first wrong values are in what a module is given."""
        if parent is None:
            self._findings.add(call.watched, "forward", "given", "input", bad, call.shapes)
            return
        is_known = self._tell_parameters(parent)
        shapes, largest = parent.shapes, largest_of(parent.given)
        named = bad._replace(name=f"{bad.name} of {call.watched.name}")
        role = "propagator" if is_known else "producer"
        self._findings.add(parent.watched, "forward", role, "intermediate", named, shapes, largest)
        self._mark(parent)

    def _leave(self, watched: Watched, result: object) -> None:
        """A module returns."""
        call = self._pop(watched)
        if call is None:
            return
        given, call.given = call.given, []
        outputs = tensors_in(result)
        bad = first_bad(outputs)
        if bad is None:
            if not self._findings.count and len(self._calls) < _MOST_CALLS:
                self._calls.append(call)
                self._hook_gradients(call, outputs, is_output=True)
            return
        is_producer = call.is_clean and not call.is_told
        if is_producer and self._tell_parameters(call):
            is_producer = False
        role = "producer" if is_producer else "propagator"
        largest = largest_of(given) if is_producer else None
        self._findings.add(watched, "forward", role, "output", bad, call.shapes, largest)
        self._mark(call)

    def _pop(self, watched: Watched) -> WatchedCall | None:
        """The call that returns; those inside it that an exception ended go, too."""
        while self._stack:
            call = self._stack.pop()
            if call.watched is watched:
                return call
        return None

    def _tell_parameters(self, call: WatchedCall) -> bool:
        """Of a module that makes wrong values, the first parameter or buffer that holds some.

        Returns whether it held them before the watch; then all parameters that did are told.
        """
        module = call.watched.module
        named = [*module.named_parameters(), *module.named_buffers()]
        before, inside = list(self._bad_before.values()), {id(m) for m in module.modules()}
        if any(id(tensor) in self._bad_before for _, tensor in named) or any(
            _is_buffer(watched, bad) and id(watched.module) in inside for watched, bad in before
        ):  # a buffer may be another tensor by now
            for watched, bad in before[:_MOST_TOLD]:
                what = "buffer" if _is_buffer(watched, bad) else "parameter"
                self._findings.add(watched, "forward", "given", what, bad)
            return True
        for name, tensor in named:
            bad_one = first_bad(tensors_in(tensor, name))
            if bad_one is not None and (bad_one.nan_count or bad_one.inf_count):
                self._findings.add(call.watched, "forward", "producer", "parameter", bad_one)
                return False
        return False

    def _mark(self, call: WatchedCall) -> None:
        """The calls around a wrong one are not the producers of what it made."""
        for one in (call, *call.around()):
            one.is_told = True

    def _look_at_loss(self, args: tuple[Any, ...]) -> None:
        """The loss is wrong, though no module's output is."""
        tensors = args[0] if args else ()
        if self._findings.count or not tensors:
            return
        bad = first_bad(tensors_in(list(tensors)))
        if bad is not None:
            self._findings.add(None, "forward", "producer", "loss", bad)

    def _hook_gradients(
        self, call: WatchedCall, tensors: list[tuple[str, Tensor]], *, is_output: bool
    ) -> None:
        """Look at the gradients of some tensors as soon as they are complete."""
        for name, tensor in tensors:
            if tensor.requires_grad:
                place = None if is_output else _place_of(tensor)
                hook = self._gradient_hook(call, name, place)
                self._tensor_handles.append(tensor.register_hook(hook))

    def _gradient_hook(self, call: WatchedCall, name: str, place: tuple[int, int] | None) -> Any:
        def hook(gradient: Tensor) -> None:
            if self._is_on and gradient is not None:
                self._run(self._gradient_came, call, name, gradient, place)

        # Else torch warns where such a tensor is pickled.
        return sys.modules["torch"].utils.hooks.unserializable_hook(hook)

    def _gradient_came(
        self, call: WatchedCall, name: str, gradient: Tensor, place: tuple[int, int] | None
    ) -> None:
        """A gradient is complete."""
        tensors = tensors_in(gradient, name)
        bad = look_at(*tensors[0]) if tensors else None
        with self._lock:
            self._events += 1
            call.has_out |= place is None
            if bad is None:
                return
            call.order = call.order or self._events
            if place is None:
                call.grad_out = call.grad_out or bad
            elif call.grad_in is None:
                call.grad_in, call.place = bad, place

    def _sort_out(self) -> None:
        """A backward pass has ended: who was the first to make a wrong gradient?"""
        calls, self._calls = self._calls, []
        if not self._findings.count:
            self._origin.tell(calls)


def _is_buffer(watched: Watched, bad: Bad) -> bool:
    """Whether what is not finite is a buffer of its module."""
    return bad.name in watched.module._buffers


def _place_of(tensor: Tensor) -> tuple[int, int]:
    """Where in the graph a tensor comes from; told apart from every other of the step."""
    node = tensor.grad_fn
    return (-1, id(tensor)) if node is None else (node._sequence_nr(), tensor.output_nr)


def _listed(names: list[str], sentence: str) -> str:
    """Some names, and what there is to say of them."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {sentence}"
