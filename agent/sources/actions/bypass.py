"""Stands in for the forward of modules that are not to run, and looks at them before.

Rules of this file: runs in the training thread, inside the model's forward. What a module gives
back in its place is a copy of its input, connected to the graph; where a call is not like the one
that was looked at, or anything fails, the module itself runs. A module that is pickled or copied
meanwhile is pickled and copied with its own forward.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
from typing import Any, NamedTuple

from ....safety.guard import Guard
from ..module_hook import ModuleHook
from ..shared.gradients import let_go_of_gradients
from ..shared.recording import Recording
from ..torch_types import Module, Tensor
from .moments.step_hooks import StepHooks

_PATIENCE_S = 0.05
"""How long others that let go of gradients are waited for, where several threads train."""
_PLAIN = (type(None), bool, int, float, str)
_MISSING: Any = object()


class Call(NamedTuple):
    """What one call of a module has shown.

    Attributes:
        key: Which argument the output is shaped like: its position or its name; None for none.
        shape: That of the output.
        dtype: The same.
        container: The type of what was returned; None for the bare tensor.
        rest: What stands behind the tensor in it: a plain value, or the shape and the type of
            another tensor.
        training: Whether the module was in training mode.
        problem: Why nothing can stand in for it, to be put behind its name; None where it can.
    """

    key: int | str | None = None
    shape: tuple[int, ...] = ()
    dtype: Any = None
    container: type | None = None
    rest: tuple[Any, ...] = ()
    training: bool = True
    problem: str | None = None


class _Like(NamedTuple):
    """A further tensor of an output."""

    shape: tuple[int, ...]
    dtype: Any


class CallLook:
    """Notes the first call of each of some modules.

    Attributes:
        calls: By ``id(module)``, what was seen.
    """

    def __init__(self, modules: list[Module]) -> None:
        self.calls: dict[int, Call] = {}
        self._modules = modules
        self._handles: dict[int, Any] = {}
        self._hook = ModuleHook(self._returned)
        self._guard = Guard("act look", self.end)

    def begin(self) -> None:
        """Look from now on; in the training thread."""
        for module in self._modules:
            handle = module.register_forward_hook(self._hook, with_kwargs=True)
            self._handles[id(module)] = handle

    def end(self) -> None:
        """Look no more; in any thread."""
        self._hook.is_on = False
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.remove()

    def _returned(
        self, module: Module, args: tuple[object, ...], kwargs: dict[str, object], result: object
    ) -> None:
        """A module returns."""
        self._guard.run(self._note, module, args, kwargs, result)

    def _note(
        self, module: Module, args: tuple[object, ...], kwargs: dict[str, object], result: object
    ) -> None:
        """Keep what a call shows, and take the hook off."""
        if not module.training and not sys.modules["torch"].is_grad_enabled():
            return  # an evaluation between two steps
        handle = self._handles.pop(id(module), None)
        if handle is not None:
            handle.remove()
            self.calls[id(module)] = read_call(module, args, kwargs, result)


def read_call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Call:
    """What a call shows."""
    tensor: Any = sys.modules["torch"].Tensor
    container = type(result) if type(result) in {tuple, list} else None
    first, *rest = result if container is not None and result else (result,)
    if not isinstance(first, tensor):
        return Call(problem=f"returns a {type(first).__name__}, not a tensor")
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    alike = [key for key, value in given if isinstance(value, tensor) and _is_alike(value, first)]
    if not alike:
        shapes = [list(value.shape) for _, value in given if isinstance(value, tensor)]
        was = f"tensors of shapes {', '.join(map(str, shapes))}" if shapes else "no tensor"
        return Call(problem=f"makes {list(first.shape)} of {was}")
    kept: list[Any] = []
    for part in rest:
        if isinstance(part, tensor):
            kept.append(_Like(tuple(part.shape), part.dtype))
        elif isinstance(part, _PLAIN) or (type(part) is tuple and not part):
            kept.append(part)
        else:
            what = type(part).__name__
            return Call(problem=f"returns a {what} beside its output, which nothing can stand for")
    shape = tuple(first.shape)
    return Call(alike[0], shape, first.dtype, container, tuple(kept), module.training)


def _is_alike(given: Any, out: Any) -> bool:
    """Whether a tensor could be the output."""
    is_alike = given.shape == out.shape and given.device == out.device
    return bool(is_alike and given.is_floating_point() == out.is_floating_point())


class Bypass:
    """Stands in the place of one module's forward."""

    def __init__(self, module: Module, call: Call, owner: Bypasses) -> None:
        functools.update_wrapper(self, module.forward)
        self._module = module
        self._call = call
        self._owner = owner
        self._own = vars(module).get("forward", _MISSING)
        self._forward = module.forward

    def put_on(self) -> None:
        """Stand in."""
        vars(self._module)["forward"] = self

    def take_off(self) -> None:
        """As before; where somebody has put something over it, that calls through."""
        own = vars(self._module)
        if own.get("forward") is not self:
            return
        if self._own is _MISSING:
            del own["forward"]
        else:
            own["forward"] = self._own

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """The module's forward."""
        owner = self._owner
        if owner.is_on and self._module.training == self._call.training:
            try:
                if owner.keeps_gradients:
                    owner.let_go()
                result = self._stand_in(args, kwargs)
            except Exception:  # noqa: BLE001 - never harm the host
                owner.guard.fault()
                result = None
            if result is not None:
                owner.has_skipped.set()
                return result
        return self._forward(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the module has its own forward."""
        if self._own is _MISSING:
            return getattr, (self._module, "forward")
        return operator.itemgetter(0), ((self._own,),)

    def _stand_in(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """What is returned in the module's place; None where the module itself must run."""
        call = self._call
        if isinstance(call.key, int):
            given = args[call.key] if call.key < len(args) else None
        else:
            given = kwargs.get(str(call.key))
        if not isinstance(given, sys.modules["torch"].Tensor):
            return None
        tensor: Any = given
        if tensor.dim() != len(call.shape):
            return None
        is_same = tuple(tensor.shape) == call.shape
        if not is_same and any(isinstance(part, _Like) for part in call.rest):
            return None  # how the other tensors would be shaped is not known
        out = tensor.to(call.dtype) if tensor.dtype != call.dtype else tensor.clone()
        if call.container is None:
            return out
        rest = [
            tensor.new_zeros(part.shape, dtype=part.dtype) if isinstance(part, _Like) else part
            for part in call.rest
        ]
        return call.container((out, *rest))


class Bypasses(StepHooks):
    """The stand-ins of one action; put on and taken off as hooks are.

    Attributes:
        has_skipped: Set as the first call has been skipped.
        idle: The parameters that take no part.
        keeps_gradients: Whether they could not be had to let go of their gradients yet.
    """

    def __init__(
        self,
        kind: str,
        value: str,
        calls: list[tuple[Module, Call]],
        idle: list[Tensor],
        recording: Recording | None = None,
    ) -> None:
        """Prepare.

        Args:
            calls: The modules, and how each is called.
            idle: The parameters that no other module has.
            recording: None where nothing else goes on in the process.
        """
        super().__init__(kind, value)
        self.has_skipped = threading.Event()
        self._calls = calls
        self.idle = idle
        self.keeps_gradients = False
        self._recording = recording
        self._bypasses: list[Bypass] = []

    @property
    def hangs(self) -> bool:
        """Whether modules are stood in for."""
        return bool(self._bypasses)

    def is_on_any(self, optimizers: list[Any]) -> bool:
        """It is no matter of optimizers: one is in the place of another."""
        return True

    def put_on(self, optimizers: list[Any]) -> None:
        """Begin; what takes no part has no gradient from now on, so that no optimizer moves it."""
        self.is_on = True
        self._bypasses = [Bypass(module, call, self) for module, call in self._calls]
        for bypass in self._bypasses:
            bypass.put_on()
        self.let_go(_PATIENCE_S)

    def let_go(self, patience_s: float = 0.0) -> None:
        """Where other threads are at work on gradients, the next call of a module tries again."""
        has_gone = let_go_of_gradients(self.idle, self._recording, patience_s=patience_s)
        self.keeps_gradients = not has_gone

    def take_off(self, optimizers: list[Any] | None = None) -> list[Any]:
        """The modules run again."""
        self.is_on = False
        bypasses, self._bypasses = self._bypasses, []
        for bypass in reversed(bypasses):
            bypass.take_off()
        return []
