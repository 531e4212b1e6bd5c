"""Puts hooks on the modules of a training, and takes every one of them off again.

Rules of this file: hooks come and go in the training thread, between steps; a hook returns None and
never raises. Code that torch.compile compiles gets no hook inside, because that would have it
compiled again: the compiled module is watched from its border. Hooks that would change what is
computed go as the module that they are on is about to be called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from ...calls import dynamo
from ...calls.names.class_names import modules_in
from ...calls.names.module_names import outermost, walk
from ...module_hook import ModuleHook
from ...shared.recording import Recording
from ...torch_types import Module

_MOST_MODULES = 50_000


class Watched:
    """A module that is watched.

    Attributes:
        module: It; let go of with the hooks.
        name: Its name in its root.
        kind: Its class.
        root: Its root's class.
        is_root: Whether it is called from outside of any other.
        is_compiled: Whether it is seen from its border only.
    """

    __slots__ = ("is_compiled", "is_root", "kind", "module", "name", "root")

    def __init__(self, module: Module, path: str, root: Module, root_text: str) -> None:
        self.module = module
        self.name = path or type(module).__name__
        self.kind = type(module).__name__
        self.root = root_text
        self.is_root = module is root
        self.is_compiled = _is_compiled(module)


class Watcher(Protocol):
    """Is told of calls; must not raise."""

    def entered(
        self, watched: Watched, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """A module is called."""

    def left(
        self, watched: Watched, args: tuple[object, ...], kwargs: dict[str, object], result: object
    ) -> None:
        """A module returns."""


class Hooks:
    """The hooks on all modules below the roots that were met.

    Attributes:
        compiled: Names of modules that are watched at their border only.
        closed: Names of modules that cannot be watched at all.
    """

    def __init__(self, recording: Recording, watcher: Watcher) -> None:
        self.compiled: list[str] = []
        self.closed: list[str] = []
        self._torch: Any = sys.modules["torch"]
        self._recording = recording
        self._watcher = watcher
        self._handles: list[tuple[int, ModuleHook, Any]] = []
        self._borders: list[tuple[Any, Any, Any]] = []

    def put_on(self) -> int:
        """Watch; returns how many modules are."""
        count = 0
        for root in outermost(self._recording.objects.roots.alive()):
            for watched in self._below(root):
                if count < _MOST_MODULES:
                    self._watch(watched)
                    count += 1
        return count

    def take_off(self) -> None:
        """Leave the modules as they were; to do so twice is harmless."""
        handles, self._handles = self._handles, []
        borders, self._borders = self._borders, []
        for _, hook, handle in handles:
            hook.is_on = False
            handle.remove()
        for module, original, wrapper in borders:
            if vars(module).get("_compiled_call_impl") is wrapper:
                module._compiled_call_impl = original

    def _below(self, root: Module) -> list[Watched]:
        """The modules below and including a root, without those inside compiled ones."""
        found: list[Watched] = []
        inside: set[int] = set()
        text = self._recording.objects.models.root_text(root)
        for path, module in walk(root, "", set()):
            if id(module) in inside:
                continue
            watched = Watched(module, path, root, text)
            if watched.is_compiled or self._is_closed(module):
                inside.update(id(below) for below in modules_in(module))
            if self._is_closed(module):
                self.closed.append(watched.name)
                continue
            if watched.is_compiled:
                self.compiled.append(watched.name)
            found.append(watched)
        return found

    def _is_closed(self, module: Module) -> bool:
        """Whether a hook would change what a module computes, or cannot be had.

        A transformer layer in evaluation takes another path through its kernels when it sees one.
        """
        return self._is_fast(module) or isinstance(module, self._torch.jit.ScriptModule)

    def _is_fast(self, module: Module) -> bool:
        """Whether it may take the path that a hook keeps it from."""
        return isinstance(module, self._torch.nn.TransformerEncoderLayer) and not module.training

    def _leave_out(self, layer: Watched) -> None:
        """Take the hooks off a layer and what is below, which has come to be evaluated."""
        self.closed.append(layer.name)
        inside = {id(layer.module), *(id(below) for below in modules_in(layer.module))}
        for number, hook, handle in self._handles:
            if number in inside:
                hook.is_on = False
                handle.remove()

    def _watch(self, watched: Watched) -> None:
        module, entered, left = watched.module, self._watcher.entered, self._watcher.left
        original = vars(module).get("_compiled_call_impl")
        if original is not None:
            wrapper = _border(watched, original, self._watcher)
            module._compiled_call_impl = wrapper
            self._borders.append((module, original, wrapper))
            return
        is_compiling: Callable[[], bool] = self._torch.compiler.is_dynamo_compiling

        def before(_: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            if is_compiling():
                return
            if self._is_fast(module):
                self._leave_out(watched)
                return
            entered(watched, args, kwargs)

        def after(
            _: object, args: tuple[object, ...], kwargs: dict[str, object], result: object
        ) -> None:
            if not is_compiling():
                left(watched, args, kwargs, result)

        places = (module.register_forward_pre_hook, before), (module.register_forward_hook, after)
        for register, call in places:
            hook = ModuleHook(call)
            self._handles.append((id(module), hook, register(hook, with_kwargs=True)))


def _border(watched: Watched, original: Callable[..., object], watcher: Watcher) -> Any:
    """Stands in for what a module has compiled of itself."""

    def call(*args: object, **kwargs: object) -> Any:
        watcher.entered(watched, args, kwargs)
        result = original(*args, **kwargs)
        watcher.left(watched, args, kwargs, result)
        return result

    dynamo.leave_out(call.__code__)
    return call


def _is_compiled(module: Module) -> bool:
    """Whether torch.compile stands before what a module computes."""
    return (
        "_orig_mod" in module._modules
        or vars(module).get("_compiled_call_impl") is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
    )
