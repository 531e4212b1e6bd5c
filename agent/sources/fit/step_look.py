"""Watches one whole training step: what the model is given, how the loss is made, what steps.

Rules of this file: runs in the training thread, on request. Keeps shapes and types, no tensor;
nodes of the autograd graph are let go of as the backward pass ends. The one hook that it puts on
a root module goes in the call that it has seen.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from ....safety.guard import Guard
from ..module_hook import ModuleHook
from ..shared.gradients import any_gradient
from ..shared.recording import Recording
from ..storage.living import living
from ..torch_types import Module, Optimizer
from .kept_tensors import Kept, KeptTensors
from .loss_graph import RESULT, LossPlan, address_of, chain_of, labels_of, read_loss
from .plain_copies import object_with, things_in
from .stepped_in_pass import SteppedInPass

_CALLER = "/agent/sources/calls/modules.py"
_NEAR = 8
_LONG_NS = 4_000_000_000
_OFTEN = 8
"""So many passes in a row without the call of a model that is trained: no step will show one."""
_TOKEN_TYPES = ("torch.int16", "torch.int32", "torch.int64")


class Given(NamedTuple):
    """A tensor that a model was called with."""

    shape: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool


class SeenStep:
    """What a step was seen to do.

    Attributes:
        root: The model that was trained; a weak reference.
        arguments: What it was called with; a `Given` stands for each tensor.
        addresses: Where the tensors lay that it was called with.
        loss: How its loss was made.
        kept_in_forward: Whether gradients were there as the model was called.
        kept_in_backward: Whether they were as a backward pass began.
        keeps_result: Whether what the model returned was still there when a backward pass had
            ended.
        autocasts: Device type and data type of each autocast that it was called within.
        optimizers: Those that stepped; weak references.
        in_pass: Which of them step inside the backward pass.
        calls: How often it was called in the step.
        passes: Backward passes in the step.
        others: Classes of other models that were trained in the step.
        step: The training step.
        kept: What else was in memory as it was called last.
    """

    def __init__(self, root: Module) -> None:
        self.root = weakref.ref(root)
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.addresses: list[int] = []
        self.loss: LossPlan | None = None
        self.kept_in_forward = False
        self.kept_in_backward = False
        self.keeps_result = False
        self.autocasts: list[tuple[str, Any]] = []
        self.optimizers: list[weakref.ref[Any]] = []
        self.in_pass = SteppedInPass()
        self.calls = self.passes = 0
        self.others: set[str] = set()
        self.step = 0
        self.kept: tuple[Kept, ...] = ()

    def sizes(self) -> tuple[int, int | None]:
        """Samples, and tokens per sample where the model is given tokens."""
        given = things_in(self.arguments, Given)
        batch = next((g.shape[0] for g in given if g.shape), 1)
        tokens = [g for g in given if len(g.shape) == 2 and str(g.dtype) in _TOKEN_TYPES]
        return batch, tokens[0].shape[1] if tokens else None


class StepLook:
    """Sees the next whole step; a `safe_points.Look`.

    Attributes:
        seen: What was seen, once `done` has been called.
        passes: Backward passes that were seen.
        guard: Why it failed, if it did.
    """

    def __init__(self, recording: Recording, done: Callable[[], None]) -> None:
        self._torch: Any = sys.modules["torch"]
        self._recording = recording
        self._done = done
        self._is_whole = self._is_over = False
        self._steps: dict[int, SeenStep] = {}
        self._nodes: dict[int, list[Any]] = {}
        self._handles: list[Any] = []
        self._chains: list[_Chain] = []
        self._kept: dict[int, KeptTensors] = {}
        self._in_pass = SteppedInPass()
        self._alone = 0  # passes in a row before which no trained model was called
        self._has_closed = False
        self._holder = ""  # the class of an argument that has tensors
        self._step: int | None = None  # the training step that is watched
        self._weight = 0  # of the largest model that the step before has trained
        self.passes = 0
        self.seen: SeenStep | None = None
        self.guard = Guard("fit", lambda: None)

    def begin(self) -> None:
        """Watch from now on."""
        recording = self._recording
        recording.events.before_backward += (self.backward_begins,)
        recording.events.after_backward += (self.backward_ended,)
        recording.events.before_step += (self.step_begins,)
        recording.safe_points.begin_look(self)

    def end(self) -> None:
        """Watch no more; what was put in place is gone or does nothing."""
        recording = self._recording
        recording.safe_points.end_look(self)
        recording.events.forget(self.step_begins, self.backward_begins, self.backward_ended)
        for handle in self._handles:  # of calls that have raised
            handle.remove()
        self._nodes.clear()
        self._chains.clear()
        self._is_over = True
        for kept in list(self._kept.values()):  # its thread may be adding one
            kept.close()
        self._kept.clear()

    def batch_came(self, batch: object) -> None:
        """See `safe_points.Look`; the call of the model says more."""

    def root_called(self) -> None:
        """See `safe_points.Look`."""
        if self.seen is None and self._is_over_by_hand():
            self.guard.run(self._read_step, None)
        if self.seen is None and self._torch.is_grad_enabled():
            self.guard.run(self._read_call)

    @property
    def obstacle(self) -> str:
        """Why no step will ever be seen; "" where one may."""
        if self._holder:
            return (
                f"the model is called with an object, {self._holder}, whose tensors cannot be made"
                " in another size; `fit --from-measured` goes by what the steps have taken"
            )
        if self._alone < _OFTEN:
            return ""
        if self._has_closed:
            return "the model is compiled by torch.compile, which plans its memory itself"
        return "what is trained is no module that the script calls: bare tensors, or the input"

    def _is_over_by_hand(self) -> bool:
        """Whether a step has ended that no optimizer of torch has made."""
        if self._recording.objects.optimizer is not None:
            return False
        now = self._recording.step
        return any(seen.passes and seen.step < now for seen in self._steps.values())

    def backward_begins(self, args: tuple[object, ...]) -> None:
        """A backward pass of the training thread is about to begin."""
        self._in_pass.pass_begins()
        if self.seen is None:
            self.guard.run(self._read_loss, args)

    def backward_ended(self, _args: tuple[object, ...], _result: object) -> None:
        """It has ended."""
        self.guard.run(self._in_pass.pass_ended, self._recording)
        self.guard.run(self._read_results)

    def step_begins(
        self, optimizer: Optimizer, _args: tuple[object, ...], _kwargs: dict[str, object]
    ) -> None:
        """An optimizer is about to step."""
        self._in_pass.steps(optimizer)
        if self.seen is None and self._is_end(optimizer):
            self.guard.run(self._read_step, optimizer)

    def _is_end(self, optimizer: Optimizer) -> bool:
        """Whether the training step ends with this optimizer: several may step in each."""
        reference, now = self._recording.objects.optimizer, self._recording.step
        counted = None if reference is None else reference()
        is_counted = counted is None or counted is optimizer
        before = now if self._step is None else self._step
        self._step = now + 1 if is_counted else max(before, now)
        return is_counted or now > before

    def _read_call(self) -> None:
        """Note what a root module is given."""
        frame: FrameType | None = sys._getframe(2)
        for _ in range(_NEAR):
            if frame is None:
                return
            if frame.f_code.co_filename.endswith(_CALLER) and frame.f_code.co_name == "call":
                break
            frame = frame.f_back
        if frame is None or frame.f_code.co_name != "call":
            return
        local = frame.f_locals
        root, args, kwargs = local["self"], local["args"], local["kwargs"]
        parameters = [p for p in root.parameters() if p.requires_grad]
        self._has_closed = self._has_closed or (bool(parameters) and self._is_closed(root))
        if not parameters or self._is_closed(root):
            return
        holder = object_with(self._torch.Tensor, (args, kwargs), self._torch.nn.Module)
        if holder is not None:
            self._holder = type(holder).__name__
            return
        seen = self._steps.get(id(root))
        if seen is None or seen.root() is not root:
            seen = self._steps[id(root)] = SeenStep(root)
        seen.arguments = (_shapes_of(args, self._torch), _shapes_of(kwargs, self._torch))
        seen.addresses = [address_of(t) or 0 for t in things_in((args, kwargs), self._torch.Tensor)]
        seen.kept_in_forward |= any_gradient(parameters, self._recording)
        seen.autocasts = _autocasts(self._torch)
        seen.step = self._recording.step
        seen.calls += 1
        kept = self._kept.setdefault(id(root), KeptTensors(self._recording))
        if self._is_listed(seen, root):
            kept.called(root, (args, kwargs))
        if self._is_over:
            kept.close()
        self._watch_result(root)

    def _is_listed(self, seen: SeenStep, root: Module) -> bool:
        """Whether it is to be listed what is there at this call of a model.

        Each list takes as long as a small step, and a recurrent model is called again and again.
        """
        return _weight(root) >= self._weight if self._is_whole else seen.calls == 1

    def _is_closed(self, root: Module) -> bool:
        """Whether a hook would have a compiled model compiled again."""
        has_wrapper = "_orig_mod" in root._modules
        return has_wrapper or vars(root).get("_compiled_call_impl") is not None

    def _watch_result(self, root: Module) -> None:
        """Have the nodes of what the call returns noted; takes its own hook away."""
        torch, nodes = self._torch, self._nodes

        def left(module: Module, _args: tuple[object, ...], result: object) -> None:
            handle.remove()
            values = things_in(plain_result(result), torch.Tensor)
            nodes[id(module)] = [value.grad_fn for value in values]

        handle = root.register_forward_hook(ModuleHook(left))
        self._handles.append(handle)

    def _is_known(self, seen: SeenStep) -> bool:
        """Whether it is known what lasts; where steps take long, that is not waited for."""
        is_long = self._recording.rows.took_ns > _LONG_NS
        return is_long or self._kept[id(seen.root())].calls > 1

    def _enter(self, phase: str) -> None:
        """A phase of the step begins: see what is still there."""
        for kept in list(self._kept.values()):
            kept.entered(phase)

    def _read_loss(self, args: tuple[Any, ...]) -> None:
        """Note how the loss was made."""
        self._enter("backward")
        nodes = dict(self._nodes)
        self._nodes.clear()
        self.passes += 1
        self._alone = 0 if nodes else self._alone + 1
        tensors = args[0] if args else ()
        if not tensors or getattr(tensors[0], "grad_fn", None) is None:
            return
        for key, results in nodes.items():
            seen = self._steps.get(key)
            root = seen.root() if seen is not None else None
            if seen is not None and root is not None:
                seen.loss = read_loss(tensors[0], results, seen.addresses)
                chain = chain_of(tensors[0], results)
                self._chains.append(_Chain(seen, chain, results))
                for label in labels_of(chain):
                    self._kept[key].is_of_loss(label)
                seen.passes += 1
                seen.kept_in_backward |= any_gradient(root.parameters(), self._recording)

    def _read_results(self) -> None:
        """Note what the script still holds of what led to the loss, though the graph let it go."""
        torch, chains = self._torch, self._chains
        self._chains = []
        places = {id(node): (chain, at) for chain in chains for at, node in chain.places()}
        kept: dict[int, set[int]] = {}
        with torch._C.DisableTorchFunction():
            for tensor in living((torch.Tensor,))[0] if places else ():
                chain, at = places.get(id(tensor.grad_fn), (None, 0))
                if chain is not None and tensor.grad_fn is not None:
                    kept.setdefault(id(chain.seen), set()).add(at)
        for chain in chains:
            own, seen = kept.get(id(chain.seen), set()), chain.seen
            seen.keeps_result = seen.keeps_result or RESULT in own
            if seen.loss is not None:
                seen.loss = seen.loss._replace(kept=frozenset(own - {RESULT}))

    def _read_step(self, optimizer: Any) -> None:
        """The step is over, or the one begins that will be seen as a whole; None: by hand."""
        trained = [seen for seen in self._steps.values() if seen.loss and seen.root()]
        largest = max(trained, key=lambda seen: _weight(seen.root()), default=None)
        if self._is_whole and largest is not None and self._is_known(largest):
            largest.others = {type(s.root()).__name__ for s in trained if s is not largest}
            alive = [o for o in self._recording.objects.counted_optimizers() if o is not optimizer]
            stepped = alive if optimizer is None else [optimizer, *alive]
            self._enter("optimizer")
            largest.kept = self._kept[id(largest.root())].found()
            largest.optimizers = [weakref.ref(o) for o in _outermost(stepped)]
            largest.in_pass = self._in_pass
            self.seen = largest
            self._done()
        else:
            self._is_whole = True
            self._weight = 0 if largest is None else _weight(largest.root())
            self._steps.clear()


def _outermost(optimizers: list[Any]) -> list[Any]:
    """Those of some optimizers that no other has, which would step it: it is part of its copy."""
    inside = {id(value) for optimizer in optimizers for value in list(vars(optimizer).values())}
    return [optimizer for optimizer in optimizers if id(optimizer) not in inside]


class _Chain(NamedTuple):
    """The nodes of one loss, until its backward pass has ended."""

    seen: SeenStep
    nodes: list[Any]
    results: list[Any]

    def places(self) -> Iterator[tuple[int, Any]]:
        """Each node with its place in the plan of the loss."""
        yield from ((RESULT, node) for node in self.results if node is not None)
        yield from enumerate(reversed(self.nodes))


def _shapes_of(value: Any, torch: ModuleType) -> Any:
    """The same with a `Given` in the place of every tensor."""
    if isinstance(value, torch.Tensor):
        shape = tuple([int(size) for size in value.shape])
        return Given(shape, value.dtype, value.device, bool(value.requires_grad))
    if type(value) in {list, tuple}:
        return type(value)(_shapes_of(part, torch) for part in value)
    if isinstance(value, dict):
        return {key: _shapes_of(part, torch) for key, part in value.items()}
    if isinstance(value, tuple):  # with names
        return type(value)(*(_shapes_of(part, torch) for part in value))
    return value


def plain_result(result: object) -> Any:
    """What a model returned, as containers; a dataclass counts by its fields."""
    if hasattr(type(result), "__dataclass_fields__") and not isinstance(result, dict):
        return list(vars(result).values())
    return result


def _autocasts(torch: ModuleType) -> list[tuple[str, Any]]:
    found = []
    for device in ("cpu", "cuda"):
        try:
            if torch.is_autocast_enabled(device):
                found.append((device, torch.get_autocast_dtype(device)))
        except (RuntimeError, TypeError):  # an older torch asks in another way
            continue
    return found


def _weight(module: Any) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters())
