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

import threading
import time
from typing import Any

from ....messages.common import Armed
from ....ring.format import DONE, NULL_FLOAT, NULL_INT
from ....ring.writer import RingWriter
from ....safety.guard import Guard
from ....tables import NUMERIC_KINDS, NUMERIC_STAGES, ROLES
from ...on_demand.armed_job import ArmedJob
from ..steps.recording import Recording
from ..torch_types import Tensor
from .bad_weights import bad_weights, have_finite_norms, owners_of
from .finite import Bad, first_bad, largest_of, look_at, shape_of, tensors_in
from .finite_hooks import Hooks, Watched
from .gradient_tensors import gradients_of

_MOST_ROWS = 64
_MOST_TOLD = 32
"""Of them, parameters that were not finite before the watch."""
_MOST_CALLS = 200_000


class _Call:
    """A call of a watched module.

    Attributes:
        is_clean: Whether all that it was given is finite.
        is_told: Whether values of it, or of a call inside it, were found not to be.
        grad_out: What is wrong with the gradient of an output.
        grad_in: What is wrong with that of an input.
        has_out: Whether a gradient of an output has come.
        order: When the first wrong gradient came.
        place: Where in the graph that input comes from: several calls may have been given it.
    """

    __slots__ = (
        "given",
        "grad_in",
        "grad_out",
        "has_out",
        "is_clean",
        "is_told",
        "order",
        "parent",
        "place",
        "shapes",
        "watched",
    )

    def __init__(self, watched: Watched, parent: _Call | None) -> None:
        self.watched = watched
        self.parent = parent
        self.is_clean = True
        self.is_told = False
        self.given: list[tuple[str, Any]] = []
        self.shapes = ""
        self.grad_in: Bad | None = None
        self.grad_out: Bad | None = None
        self.has_out = False
        self.order = 0
        self.place: tuple[int, int] | None = None


class Findings:
    """The rows of one arming."""

    def __init__(self, recording: Recording, ring: RingWriter, arming: int) -> None:
        self.count = 0
        self.step: int | None = None
        self._recording = recording
        self._ring = ring
        self._arming = arming

    def add(  # noqa: PLR0917 - each is a column
        self,
        watched: Watched | None,
        stage: str,
        role: str,
        what: str,
        bad: Bad,
        given: str = "",
        given_max: float | None = None,
    ) -> None:
        """Write a row."""
        if self.count >= _MOST_ROWS:
            return
        intern, step = self._recording.names.intern, self._recording.step
        self.count += 1
        self.step = step if self.step is None else self.step
        values: dict[str, Any] = {
            "stage": NUMERIC_STAGES.index(stage),
            "role": ROLES.index(role),
            "what": NUMERIC_KINDS.index(what),
            "tensor": intern(bad.name),
            "nan_count": bad.nan_count,
            "inf_count": bad.inf_count,
            "share": (bad.nan_count + bad.inf_count) / bad.numel if bad.numel else NULL_FLOAT,
            "finite_max": NULL_FLOAT if bad.finite_max is None else bad.finite_max,
            "shape": intern(bad.shape),
            "given_max": NULL_FLOAT if given_max is None else given_max,
            "arming": self._arming or NULL_INT,
        }
        if given:
            values["given"] = intern(given)
        if watched is not None:
            values["module"] = intern(watched.name)
            values["class"] = intern(watched.kind)
            values["root"] = intern(watched.root)
        word = self._ring.open_row(time.perf_counter_ns(), step)
        self._ring.close_named(word, DONE, values)


class NumericsWatch(ArmedJob):
    """Watches some steps, by hooks that go at the end of a step only."""

    what = "nan"

    def __init__(self, recording: Recording, ring: RingWriter, steps: int, number: int) -> None:
        super().__init__(number, steps)
        self.guard = Guard("numerics", self.end)
        self._recording = recording
        self._findings = Findings(recording, ring, number)
        self._hooks = Hooks(recording, self)
        self._modules = 0
        self._thread = 0
        self._calls: list[_Call] = []
        self._stack: list[_Call] = []
        self._tensor_handles: list[Any] = []
        self._events = 0
        self._is_on = False
        self._is_ended = False
        self._has_called = False
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
        self._bad_before = bad_weights(self._recording, self._recording.roots.alive())
        self._thread = threading.get_ident()
        self.first_step, self.state, self._is_on = self._recording.step, "armed", True
        self._recording.numerics = self
        self._modules = self._hooks.put_on()

    def _take_off(self, state: str) -> None:
        """End; the modules are as before."""
        self.state = state if self.state not in {"over", "failed"} else self.state
        self._is_ended = True
        if self._is_on:
            self._is_on = False
            if self._recording.numerics is self:
                self._recording.numerics = None
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
        self._has_called = False

    def _enter(self, watched: Watched, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """A module is called."""
        if watched.is_root:
            self._stack.clear()  # what is left of a call that an exception ended
        parent = self._stack[-1] if self._stack else None
        call = _Call(watched, parent)
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
        self._has_called = True

    def _tell_origin(self, call: _Call, parent: _Call | None, bad: Bad) -> None:
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

    def _pop(self, watched: Watched) -> _Call | None:
        """The call that returns; those inside it that an exception ended go, too."""
        while self._stack:
            call = self._stack.pop()
            if call.watched is watched:
                return call
        return None

    def _tell_parameters(self, call: _Call) -> bool:
        """Of a module that makes wrong values, the first parameter or buffer that holds some.

        Returns whether it held them before the watch; then all parameters that did are told.
        """
        module = call.watched.module
        named = [*module.named_parameters(), *module.named_buffers()]
        if any(id(tensor) in self._bad_before for _, tensor in named):
            for watched, bad in list(self._bad_before.values())[:_MOST_TOLD]:
                self._findings.add(watched, "forward", "given", "parameter", bad)
            return True
        for name, tensor in named:
            bad_one = first_bad(tensors_in(tensor, name))
            if bad_one is not None and (bad_one.nan_count or bad_one.inf_count):
                self._findings.add(call.watched, "forward", "producer", "parameter", bad_one)
                return False
        return False

    def _mark(self, call: _Call) -> None:
        """The calls around a wrong one are not the producers of what it made."""
        around: _Call | None = call
        while around is not None:
            around.is_told = True
            around = around.parent

    def _look_at_loss(self, args: tuple[Any, ...]) -> None:
        """The loss is wrong, though no module's output is."""
        tensors = args[0] if args else ()
        if self._findings.count or not tensors:
            return
        bad = first_bad(tensors_in(list(tensors)))
        if bad is not None:
            self._findings.add(None, "forward", "producer", "loss", bad)

    def _hook_gradients(
        self, call: _Call, tensors: list[tuple[str, Tensor]], *, is_output: bool
    ) -> None:
        """Look at the gradients of some tensors as soon as they are complete."""
        for name, tensor in tensors:
            if tensor.requires_grad:
                place = None if is_output else _place_of(tensor)
                hook = self._gradient_hook(call, name, place)
                self._tensor_handles.append(tensor.register_hook(hook))

    def _gradient_hook(self, call: _Call, name: str, place: tuple[int, int] | None) -> Any:
        def hook(gradient: Tensor) -> None:
            if self._is_on and gradient is not None:
                self._run(self._gradient_came, call, name, gradient, place)

        return hook

    def _gradient_came(
        self, call: _Call, name: str, gradient: Tensor, place: tuple[int, int] | None
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
        if self._findings.count:
            return
        touched = sorted((c for c in calls if c.order), key=lambda call: call.order)
        makers = [c for c in touched if c.has_out and c.grad_out is None and c.grad_in is not None]
        inner = {id(around) for maker in makers for around in _around(maker)}
        makers = [maker for maker in makers if id(maker) not in inner]
        if makers:  # those that were given the same tensor cannot be told apart
            self._tell_gradients([m for m in makers if m.place == makers[0].place], touched)
        elif touched:
            self._tell_code_around(touched)
        else:
            self._look_at_parameters()

    def _tell_gradients(self, makers: list[_Call], touched: list[_Call]) -> None:
        """Modules were given finite gradients, and made one that is not."""
        for maker in makers:
            if maker.grad_in is not None:
                bad = maker.grad_in
                self._findings.add(maker.watched, "backward", "producer", "grad", bad, maker.shapes)
        self._tell_rest(makers, touched)

    def _tell_code_around(self, touched: list[_Call]) -> None:
        """The first wrong gradient is that of an output, and no module made it."""
        first = touched[0]
        bad = first.grad_out or first.grad_in
        assert bad is not None
        for around in _around(first):
            if around.has_out and around.grad_out is None:
                named = bad._replace(name=f"{bad.name} of {first.watched.name}")
                self._findings.add(around.watched, "backward", "producer", "intermediate", named)
                break
        else:
            # What is given to the outermost is given to those inside whose output it returns.
            outer = [call for call in (first, *_around(first)) if call.grad_out is not None]
            given = outer[-1] if outer else first
            named = (given.grad_out or bad)._replace(name=f"output {bad.name}")
            self._findings.add(given.watched, "backward", "given", "grad", named)
            first = given
        self._tell_rest([first], touched)

    def _tell_rest(self, told: list[_Call], touched: list[_Call]) -> None:
        """Those that only pass on what came to them."""
        for call in touched:
            bad = call.grad_in or call.grad_out
            if call not in told and bad is not None:
                self._findings.add(call.watched, "backward", "propagator", "grad", bad)

    def _look_at_parameters(self) -> None:
        """No gradient between modules is wrong; one of a parameter may be all the same."""
        owners = owners_of(self._recording, self._recording.roots.alive())
        named = {id(p): p for root in self._recording.roots.alive() for p in root.parameters()}
        pairs, _ = gradients_of(list(named.values()))
        if not pairs:
            return
        finite = have_finite_norms([gradient for _, gradient in pairs])
        for (parameter, gradient), is_finite in reversed(list(zip(pairs, finite, strict=True))):
            watched, name = owners[id(parameter)]
            bad = None if is_finite else look_at(name, gradient)
            if bad is not None:  # the last in the model is the first of the pass
                self._findings.add(watched, "backward", "producer", "parameter", bad)


def _around(call: _Call) -> list[_Call]:
    """The calls around one, from the inside."""
    found: list[_Call] = []
    around = call.parent
    while around is not None:
        found.append(around)
        around = around.parent
    return found


def _place_of(tensor: Tensor) -> tuple[int, int]:
    """Where in the graph a tensor comes from; told apart from every other of the step."""
    node = tensor.grad_fn
    return (-1, id(tensor)) if node is None else (node._sequence_nr(), tensor.output_nr)


def _listed(names: list[str], sentence: str) -> str:
    """Some names, and what there is to say of them."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {sentence}"
