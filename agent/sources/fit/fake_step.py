"""Runs one training step on tensors without data, and counts the bytes that they would take.

Rules of this file: nothing here touches a live tensor or module; all of it runs on a `FakeCopy`, in
a thread of the agent, while the training is held, so that what the code of a model reaches beside
it can be put back (`surroundings`). Every operation asks first whether there is time left, and
whether it would change a live tensor. What is counted is what tensors take, each storage once: the
workspace that a kernel takes and gives back within one operation is not seen, but for that of some
losses.

A step is: forward, loss, backward, optimizer. Gradients of the step before are there during the
forward pass, or are not, as the training was seen to have them.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from ....errors import FitRefused, FitTimedOut
from ..torch_types import Tensor
from .plain_copies import things_in
from .positions import Positions
from .reductions import Reductions
from .stepped_in_pass import InPass

CUDA_GRAIN = 512
"""The allocator of CUDA hands out multiples of this."""
KEPT = "kept by variables"


class Step(NamedTuple):
    """One step to run.

    Attributes:
        model: The copy of the model.
        optimizers: The copies of the optimizers.
        arguments: What the model is called with, without data.
        loss: Makes the loss of what the model returns, and of the labels that it needs counted.
        kept_in_forward: Whether gradients of the step before are there during the forward pass.
        kept_in_backward: Whether they still are as the backward pass begins.
        keeps_result: Whether the script still has what the model returned in the backward pass.
        contexts: What the model was called within, such as autocast.
        kept: By phase, the bytes of what else is there up to it.
        in_pass: Which of the optimizers step inside the backward pass.
    """

    model: Any
    optimizers: list[Any]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    loss: Callable[[Any], Any]
    kept_in_forward: bool
    kept_in_backward: bool
    keeps_result: bool
    contexts: list[Any]
    kept: Mapping[str, int]
    in_pass: InPass = InPass((), lets_go=False)


class Peak(NamedTuple):
    """The most that was in use at one time.

    Attributes:
        phase: ``forward``, ``loss``, ``backward`` or ``optimizer``: when that was.
        parts: What it consisted of, by category.
    """

    bytes: int
    phase: str
    parts: dict[str, int]


class LiveBytes:
    """Counts the bytes of live storages on one device, by category."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._grain = CUDA_GRAIN if device.startswith("cuda") else 1
        self._live: dict[int, tuple[int, str, Any]] = {}
        self._sums: dict[str, int] = {}
        self._total = 0
        self.phase = "forward"
        self.peak = Peak(0, "forward", {})

    def add(self, tensor: Tensor, category: str, least: int = 0) -> None:
        """Count a tensor's storage, unless it is counted already.

        Args:
            least: What it takes at least, whatever it says of itself.
        """
        if str(tensor.device) != self._device:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        size = -(-max(storage.nbytes(), least) // self._grain) * self._grain
        gone = weakref.ref(storage, lambda _: self._remove(key))
        self._live[key] = (size, category, gone)
        self._change(category, size)
        self.pass_through(0)

    def pass_through(self, size: int) -> None:
        """Count so many bytes for a moment."""
        if self._total + size > self.peak.bytes:
            parts = dict(self._sums)
            if size:
                parts["temporary"] = parts.get("temporary", 0) + size
            self.peak = Peak(self._total + size, self.phase, parts)

    def keep(self, size: int) -> None:
        """Count so many bytes more of what variables keep; fewer where it is negative."""
        self._change(KEPT, size)
        self.pass_through(0)

    def move(self, tensor: Tensor, category: str) -> None:
        """Count a storage under another category from now on."""
        key = tensor.untyped_storage()._cdata
        if key in self._live:
            size, before, gone = self._live[key]
            self._live[key] = (size, category, gone)
            self._change(before, -size)
            self._change(category, size)

    def _remove(self, key: int) -> None:
        """A storage has been freed."""
        size, category, _ = self._live.pop(key)
        self._change(category, -size)

    def _change(self, category: str, size: int) -> None:
        self._sums[category] = self._sums.get(category, 0) + size
        self._total += size


def run_step(step: Step, mode: Any, device: str, check: Callable[[], None]) -> Peak:
    """Run a step; returns the most that its tensors took.

    Args:
        mode: The `FakeTensorMode` that the copies belong to.
        check: Called before every operation; raises when there is no time left.

    Raises:
        FitRefused: The model does something that needs data.
    """
    torch: Any = sys.modules["torch"]
    live = LiveBytes(device)
    _count_what_stays(step, live, torch)
    _refuse_hooks()
    try:
        counting = _counting(torch, live, check)
        with mode, counting, torch.enable_grad(), _one_thread(torch):
            _run_phases(step, live, torch)
    except (FitRefused, FitTimedOut):
        raise
    except Exception as error:
        raise FitRefused(_why(error, live.phase)) from error
    return live.peak


def _refuse_hooks() -> None:
    """Refuse hooks for all modules: they would be called for the copies.

    Raises:
        FitRefused: There are some.
    """
    around = vars(sys.modules["torch.nn.modules.module"])
    for name in ("forward", "forward_pre", "backward", "backward_pre"):
        if around.get(f"_global_{name}_hooks"):
            raise FitRefused(f"hooks for all modules are registered ({name}), which would see it")


def _count_what_stays(step: Step, live: LiveBytes, torch: ModuleType) -> None:
    """What is there before the step begins."""
    parameters = list(step.model.parameters())
    for parameter in parameters:
        live.add(parameter, "parameters")
    for buffer in step.model.buffers():
        live.add(buffer, "buffers")
    for optimizer in step.optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                live.add(parameter, "parameters")
        for state in list(optimizer.state.values()):
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    live.add(value, "optimizer state")
    for tensor in things_in(step.arguments, torch.Tensor):
        live.add(tensor, "inputs")
    live.keep(sum(step.kept.values()))


def _run_phases(step: Step, live: LiveBytes, torch: ModuleType) -> None:
    """The step itself."""
    parameters = _trained(step)
    for parameter in parameters:
        parameter.grad = None
        if step.kept_in_forward:
            parameter.grad = torch.empty_like(parameter)
            live.move(parameter.grad, "gradients")
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda p: live.move(p.grad, "gradients"))
        for parameter in parameters
        if parameter.is_leaf
    ]
    hooks += step.in_pass.watch(lambda optimizer: _step_within(optimizer, live))
    try:
        args, kwargs = step.arguments
        with contextlib.ExitStack() as stack:
            for context in step.contexts:
                stack.enter_context(context)
            result = step.model._call_impl(*args, **kwargs)
            _enter(live, "loss", step)
            loss = step.loss(result)
        if not step.kept_in_backward:
            for parameter in parameters:
                parameter.grad = None
        if not step.keeps_result:
            result = None
        _enter(live, "backward", step)
        loss.backward()
        _enter(live, "optimizer", step)
        for optimizer in step.in_pass.others(step.optimizers):
            _plain_step(optimizer)
        del result, loss
    finally:
        for hook in hooks:
            hook.remove()
        for parameter in parameters:
            parameter.grad = None


def _trained(step: Step) -> list[Any]:
    found = {id(p): p for p in step.model.parameters() if p.requires_grad}
    return list(found.values())


def _enter(live: LiveBytes, phase: str, step: Step) -> None:
    """A phase begins: what variables kept up to the one before has gone."""
    live.keep(-step.kept.get(live.phase, 0))
    live.phase = phase


def _step_within(optimizer: Any, live: LiveBytes) -> None:
    """The same within another phase, which goes on behind it."""
    phase, live.phase = live.phase, "optimizer"
    _plain_step(optimizer)
    live.phase = phase


def _plain_step(optimizer: Any) -> None:
    """The step of an optimizer without the hooks around it, which belong to the live ones."""
    method = type(optimizer).step
    if getattr(method, "hooked", False):
        method = method.__wrapped__
    method(optimizer)


@contextlib.contextmanager
def _one_thread(torch: ModuleType) -> Iterator[None]:
    """Have the backward pass run in this thread, on whatever device."""
    with torch.autograd.set_multithreading_enabled(False):
        yield


def _counting(torch: ModuleType, live: LiveBytes, check: Callable[[], None]) -> Any:
    """The dispatch mode that counts what every operation makes."""
    base: Any = sys.modules["torch.utils._python_dispatch"].TorchDispatchMode
    leaves = sys.modules["torch.utils._pytree"].tree_iter
    number = torch.ops.aten._local_scalar_dense.default
    positions, reductions = Positions(torch), Reductions(torch)

    class Counting(base):  # type: ignore[misc]
        """See `_counting`."""

        def __torch_dispatch__(
            self,
            func: Any,
            types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> Any:
            check()
            _check_tensors(func, args, kwargs or {}, torch)
            if func is number:
                return _number_of(args[0], live.phase)
            result = func(*args, **(kwargs or {}))
            category = _CATEGORY_OF[live.phase]
            extra = reductions.cost_of(func, args, result)
            if extra is not None:
                live.add(result, category, extra.kept)
                live.pass_through(extra.passing)
            for tensor in leaves(result):
                if isinstance(tensor, torch.Tensor):
                    live.add(tensor, category)
            positions.see(func, args, result)
            return result

    return Counting()


def _check_tensors(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], torch: ModuleType
) -> None:
    """Let an operation read live tensors, which no copy was made of, and nothing more.

    Raises:
        FitRefused: It would change one, have a gradient put into it, or reach other processes.
    """
    if func.namespace.startswith(("c10d", "_c10d")):
        raise FitRefused(f"the step talks to other processes ({func})")
    fake = sys.modules["torch._subclasses.fake_tensor"].FakeTensor
    for argument, value in [*zip(func._schema.arguments, args, strict=False), *kwargs.items()]:
        for tensor in things_in(value, torch.Tensor):
            if isinstance(tensor, fake):
                continue
            name = argument if isinstance(argument, str) else argument.name
            if func._schema.is_mutable and name in _written(func):
                raise FitRefused(f"the step changes a tensor outside of the model ({func})")
            if tensor.requires_grad and torch.is_grad_enabled():
                raise FitRefused(f"the step trains a tensor outside of the model ({func})")


def _written(func: Any) -> set[str]:
    """The arguments that an operation changes."""
    aliases = [(argument.name, argument.alias_info) for argument in func._schema.arguments]
    return {name for name, alias in aliases if alias is not None and alias.is_write}


_CATEGORY_OF = {
    "forward": "activations",
    "loss": "activations",
    "backward": "temporary",
    "optimizer": "temporary",
}


def _number_of(tensor: Tensor, phase: str) -> Any:
    """A number out of a tensor: the optimizer's count of steps may be any, the model's may not.

    Raises:
        FitRefused: The model asks.
    """
    if phase != "optimizer":
        raise FitRefused(
            f"in its {phase} the model reads a number out of a tensor (.item()), and what it does"
            " then depends on data"
        )
    return 1.0 if tensor.dtype.is_floating_point else 1


def _why(error: Exception, phase: str) -> str:
    """What stopped a step on tensors without data, in words."""
    func = getattr(error, "func", None)
    where = "the loss" if phase == "loss" else f"the {phase} pass"
    if func is not None:
        return f"in {where}, {func} cannot run without data"
    first = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{where} fails with such shapes: {type(error).__name__}: {first}"


def fake_mode() -> Any:
    """A mode in which tensors have no data.

    Raises:
        FitRefused: This torch has none.
    """
    module = sys.modules.get("torch._subclasses.fake_tensor")
    if module is None:
        raise FitRefused("this version of torch has not loaded its fake tensors")
    mode = module.FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
    mode._allow_unsafe_data_ptr_access = False  # a kernel outside of torch gets no null pointer
    return mode


@contextlib.contextmanager
def clean_cache() -> Iterator[None]:
    """Leave the process's cache of such operations as it was; it makes a step four times faster."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    cache = getattr(getattr(module, "FakeTensorMode", None), "cache", {})
    before = set(cache)
    try:
        yield
    finally:
        for key in set(cache) - before:
            cache.pop(key, None)
