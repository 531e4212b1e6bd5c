"""Copies a model and its optimizers with tensors that have shapes and no data.

Rules of this file: runs in a thread of the agent while the training is held. Reads shapes, types
and devices of live tensors, never their data, and changes nothing that is live. Plain attributes
are copied with the module, so that code of the model which counts or caches something does so in
the copy (`plain_copies`). Hooks of the program are left out, because what they do outside the model
cannot be undone; those by which torch itself makes weights are kept. What cannot be copied
faithfully is refused, by name.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import defaultdict
from types import ModuleType
from typing import Any, NoReturn

from ....errors import FitRefused
from ..torch_types import Module, Optimizer, Tensor
from .plain_copies import (
    PLAIN,
    NoCopy,
    StandIn,
    copied_container,
    copied_object,
    is_container,
    is_never_changed,
)

_MOST_OBJECTS = 100_000


class FakeCopy:
    """A copy of everything that a training step works on.

    Attributes:
        hooks: How many hooks of the program were left out.
    """

    def __init__(self, mode: Any) -> None:
        self._torch: Any = sys.modules["torch"]
        self._mode = mode
        self._memo: dict[int, Any] = {}
        self._kept: list[Any] = []  # so that no identity in the memo becomes another's
        self._left = _MOST_OBJECTS
        self.hooks = 0

    def module(self, module: Module, path: str = "") -> Any:
        """The copy of a module, with all modules inside it.

        Raises:
            FitRefused: A part of it cannot be copied.
        """
        if id(module) in self._memo:
            return self._memo[id(module)]
        _check_module(module, path, self._torch)
        copied = self._remember(module, object.__new__(type(module)))
        vars(copied).update(
            {name: self._attribute(module, name, value, path) for name, value in _facts(module)}
        )
        return copied

    def again(self, module: Module) -> Any:
        """One more copy of a module, that shares no parameter with the first."""
        return FakeCopy(self._mode).module(module)

    def code(self) -> list[Any]:
        """The classes of all that has been copied, and the functions in it."""
        functions = [value for value in self._kept if type(value) is types.FunctionType]
        return [*set(map(type, self._kept)), *functions]

    def is_copied(self, value: object) -> bool:
        """Whether an object was made here, so that it may be changed."""
        return any(value is made for made in self._memo.values())

    def like(self, value: object) -> Any:
        """A tensor as another is, or the same value where it is none."""
        return self.tensor(value, "") if isinstance(value, self._torch.Tensor) else value

    def optimizer(self, optimizer: Optimizer, devices: set[str]) -> Any:
        """The copy of an optimizer with its state, for the copies of its parameters.

        Args:
            devices: Gets the devices of its parameters.
        """
        _check_optimizer(optimizer)
        copied = self._remember(optimizer, object.__new__(type(optimizer)))
        for name, value in list(vars(optimizer).items()):
            if name == "state":
                fresh: Any = defaultdict(dict)
                for parameter, state in list(value.items()):
                    fresh[self.any(parameter)] = self.any(state)
                vars(copied)[name] = fresh
            elif name.endswith("_hooks"):
                vars(copied)[name] = type(value)() if isinstance(value, dict) else value
            elif name != "step":  # a scheduler puts its own in that place
                vars(copied)[name] = self.any(value)
        for group, live in zip(copied.param_groups, optimizer.param_groups, strict=True):
            devices.update(str(p.device) for p in live["params"])
            self._settle_kernels(group, live)
        return copied

    def any(self, value: Any, path: str = "") -> Any:
        """The copy of any value."""
        if type(value) in PLAIN:
            return value
        if id(value) in self._memo:
            return self._memo[id(value)]
        if isinstance(value, self._torch.Tensor):
            return self._remember(value, self.tensor(value, path))
        if isinstance(value, self._torch.nn.Module):
            return self.module(value, path)
        if is_never_changed(value, self._torch):
            return value
        self._left -= 1
        if self._left < 0:
            _refuse(f"the model holds more than {_MOST_OBJECTS:,} objects")
        return self._plain(value, path)

    def tensor(self, tensor: Any, path: str) -> Any:
        """A tensor of the same shape, without data.

        Raises:
            FitRefused: It is of a class of its own, such as a sharded or a quantized one.
        """
        torch = self._torch
        plain = {torch.Tensor, torch.nn.Parameter, type(tensor) if self._is_ours(tensor) else None}
        if type(tensor) not in plain or tensor.is_quantized:
            _refuse(f"{path or 'a tensor'} is a {type(tensor).__name__}")
        if tensor.layout is not torch.strided or tensor.is_nested:
            _refuse(f"{path or 'a tensor'} is not a dense tensor")
        with self._mode, torch.no_grad():
            fake = torch.empty_strided(
                tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )
        if isinstance(tensor, torch.nn.Parameter):
            with self._mode:
                return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad and tensor.is_leaf)

    def _is_ours(self, tensor: Tensor) -> bool:
        """Whether it is one of the mode's own tensors."""
        return getattr(tensor, "fake_mode", None) is self._mode

    def _attribute(self, module: Module, name: str, value: Any, path: str) -> Any:
        """What the copy of a module has under one of its names."""
        inside = f"{path}." if path else ""
        if name in {"_parameters", "_buffers"}:
            pairs = [(key, self.any(item, inside + key)) for key, item in list(value.items())]
            return type(value)(pairs)
        if name == "_modules":
            found = {key: part for key, part in list(value.items()) if part is not None}
            fresh = {key: self.module(part, inside + key) for key, part in found.items()}
            return type(value)((key, fresh.get(key)) for key in value)
        if name.endswith("_hooks") and isinstance(value, dict):
            return self._hooks(value)
        if name == "forward" and not (
            isinstance(value, types.MethodType) and value.__self__ is module
        ):
            _refuse(f"the forward of {path or type(module).__name__} has been replaced")
        return self.any(value, inside + name)

    def _hooks(self, hooks: Any) -> Any:
        """Of hooks those that torch uses to make a module's weights."""
        kept = {
            key: hook
            for key, hook in list(hooks.items())
            if type(hook).__module__.startswith("torch.nn.utils")
        }
        self.hooks += len(hooks) - len(kept)
        return type(hooks)(kept)

    def _plain(self, value: Any, path: str) -> Any:
        """The copy of what is neither tensor nor module."""

        def remember(copied: Any) -> Any:
            return self._remember(value, copied)

        if type(value) in weakref.ProxyTypes:  # as Lightning's Trainer is for a part of it
            _refuse("the model has an object behind a weak proxy, which cannot be copied")
        if isinstance(value, self._torch.Generator):
            fresh = self._torch.Generator(device=value.device)
            fresh.set_state(value.get_state())
            return remember(fresh)
        if isinstance(value, self._torch.optim.Optimizer):
            _check_optimizer(value)
        if is_container(value) and not hasattr(type(value), "__del__"):
            try:
                return copied_container(value, self.any, remember)
            except NoCopy:
                return remember(StandIn(value, path))
        return copied_object(value, path, self.any, remember)

    def _settle_kernels(self, group: dict[str, object], live: dict[str, object]) -> None:
        """Have the copy take the way through its kernels that torch takes for the real ones."""
        decide = getattr(sys.modules["torch.optim.optimizer"], "_default_to_fused_or_foreach", None)
        undecided = "foreach" in live and live["foreach"] is None and not live.get("fused")
        if decide is not None and undecided:
            is_differentiable = bool(live.get("differentiable"))
            group["foreach"] = decide(live["params"], is_differentiable, use_fused=False)[1]

    def _remember(self, value: object, copied: object) -> Any:
        """Use the same copy wherever a value is met again."""
        self._memo[id(value)] = copied
        self._kept.append(value)
        return copied


def _facts(module: Module) -> list[tuple[str, Any]]:
    """All that belongs to a module, as far as a copy needs it."""
    return [(name, value) for name, value in vars(module).items() if name != "_compiled_call_impl"]


def _check_module(module: Module, path: str, torch: ModuleType) -> None:
    """Refuse a module that does not run as plain Python code.

    Raises:
        FitRefused: Its memory would not be that of a copy.
    """
    where = f"{path} ({type(module).__name__})" if path else type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        _refuse(f"{where} is compiled by torch.jit")
    if "_orig_mod" in module._modules or vars(module).get("_compiled_call_impl") is not None:
        _refuse(f"{where} is compiled by torch.compile, which plans its memory itself")
    owner = type(module).__module__
    if owner.startswith(("torch.distributed", "torch.nn.parallel")):
        _refuse(f"{where} shares its work with other processes or devices")
    if owner.startswith("torch.ao.") or ".quantized" in owner:
        _refuse(f"{where} is quantized")
    if hasattr(type(module), "__del__"):
        _refuse(f"{where} lets go of something in its __del__, which a copy of it would do, too")


def _check_optimizer(optimizer: Optimizer) -> None:
    """Refuse an optimizer that has to do with more than its tensors.

    Raises:
        FitRefused: A copy of it would have to do with the same.
    """
    where = type(optimizer).__name__
    if hasattr(type(optimizer), "__del__"):
        _refuse(f"{where} lets go of something in its __del__, which a copy of it would do, too")
    if type(optimizer).__module__.startswith("torch.distributed"):
        _refuse(f"{where} shares its work with other processes or devices")


def _refuse(why: str) -> NoReturn:
    raise FitRefused(why)
