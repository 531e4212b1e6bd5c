"""Watches one forward call of each root module: shapes in and out, and operations.

Rules of this file: the hooks run in the training threads, in one call of a root that somebody has
asked for, and are gone as it ends; no other call pays anything. A hook returns None, never raises,
and keeps texts and numbers, no tensor. Code that is or may be compiled gets no hook, because that
would have it compiled again; nor does a layer that would compute differently because of one.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ....safety.guard import Guard
from ..model.flops import Formulas, Shapes
from ..model.function_flops import FunctionFlops
from ..module_hook import ModuleHook
from ..shared.recording import Recording
from ..torch_types import Module
from .call_shapes import Tensors, read_tensors
from .names.class_names import parameters_in, unwrap
from .names.module_names import outermost

_MOST_MODULES = 50_000


class Observed:
    """What the most recent observed forward has shown of one module.

    Attributes:
        reference: The module.
        step: The training step.
        calls: How often the module was called in it.
        given: What its last call was given.
        returned: What that call returned.
        flops: Operations of all calls; None where no formula is known.
        is_lower_bound: Whether there may have been more.
    """

    __slots__ = ("calls", "flops", "given", "is_lower_bound", "reference", "returned", "step")

    def __init__(self, module: Module, step: int) -> None:
        self.reference = weakref.ref(module)
        self.step = step
        self.calls = 0
        self.given: Tensors | None = None
        self.returned: Tensors | None = None
        self.flops: int | None = None
        self.is_lower_bound = False


class _Call:
    """A call in progress, and the operations of those inside it that have ended."""

    __slots__ = ("flops", "has_formula", "is_incomplete", "module")

    def __init__(self, module: int, *, has_formula: bool) -> None:
        self.module = module
        self.has_formula = has_formula
        self.flops: int | None = None
        self.is_incomplete = False


class Observation:
    """One look at the next call of every root; `recording.looks.modules` while it is wanted.

    Attributes:
        seen: What was observed, by ``id(module)``.
        is_over: Set as soon as every root has been seen, or nobody waits any more.
        guard: Why it failed, if it did.
    """

    def __init__(self, recording: Recording) -> None:
        self.seen: dict[int, Observed] = {}
        self._current: dict[int, Observed] = {}  # of the call in progress
        self.is_over = threading.Event()
        self.guard = Guard("shapes", lambda: None)
        self._torch: Any = sys.modules["torch"]
        self._recording = recording
        self._formulas = Formulas()
        # Taken a few times, and in no call but the observed ones; a signal's handler may come back.
        self._lock = threading.RLock()
        self._ended: set[int] = set()
        self._root: weakref.ref[Any] | None = None
        self._thread = 0
        self._step = 0
        self._handles: list[Any] = []
        self._calls: list[_Call] = []
        self._hooks = ModuleHook(self._entered), ModuleHook(self._left)
        self._functions = FunctionFlops(self._count_function)

    def root_called(self, root: Module, step: int) -> None:
        """A root is about to be called; runs in the training thread."""
        with self._lock:
            self._begin(root, step)

    def root_left(self, root: Module, *, failed: bool = False) -> None:
        """A root's call has ended; runs in the training thread.

        Args:
            failed: Whether by an exception: then its next call is looked at.
        """
        with self._lock:
            if self._root is None or self._root() is not root or not self._is_mine():
                return
            if not failed:
                self.seen.update(self._current)
                self._ended.add(id(root))
            self._remove_hooks()
            if not failed and self._has_seen_all():
                self._finish()

    def give_up(self) -> None:
        """Nobody waits any more; a call that is being observed still is, to its end."""
        with self._lock:
            self.is_over.set()
            if self._root is None:
                self._finish()

    def _begin(self, root: Module, step: int) -> None:
        """Put the hooks in place, unless this root was seen already or cannot be looked into."""
        if self._root is not None:
            if not self._is_mine():
                return  # another thread's call is being observed
            self._remove_hooks()  # of a call whose end went by unseen
        main = self._recording.objects.model
        if self.is_over.is_set() or (id(root) in self._ended and main and main() is root):
            self._finish()  # the main root comes again: whatever is still called has been seen
        elif id(root) not in self._ended and not self._is_transformed():
            self._root, self._thread, self._step = weakref.ref(root), threading.get_ident(), step
            for module in list(_eager_modules(root, self._torch))[:_MOST_MODULES]:
                self.guard.run(self._hook, module)
            if not _has_compiled():  # a compiled function would be compiled again
                self.guard.run(self._functions.start)

    def _hook(self, module: Module) -> None:
        entered, left = self._hooks
        self._handles.append(module.register_forward_pre_hook(entered))
        self._handles.append(module.register_forward_hook(left, with_kwargs=True))

    def _remove_hooks(self) -> None:
        handles, self._handles = self._handles, []
        self._root, self._thread, self._current = None, 0, {}
        self._calls.clear()
        self.guard.run(self._functions.stop)
        for handle in handles:
            self.guard.run(handle.remove)

    def _finish(self) -> None:
        """From the next call on, nothing is different."""
        if self._recording.looks.modules is self:
            self._recording.looks.modules = None
        self.is_over.set()

    def _has_seen_all(self) -> bool:
        """Whether every root with parameters that has been met was called."""
        roots = outermost(self._recording.objects.roots.alive())
        wanted = {id(root) for root in roots if next(parameters_in(root), None) is not None}
        return bool(self._ended) and wanted <= self._ended

    def _is_mine(self) -> bool:
        """Whether the calling thread is the one whose call is observed."""
        return self._thread == threading.get_ident()

    def _is_transformed(self) -> bool:
        """Whether what runs is being traced, or run frame by frame by torch.compile."""
        core = self._torch._C
        frames = getattr(getattr(core, "_dynamo", None), "eval_frame", None)
        callback = getattr(frames, "get_eval_frame_callback", None)
        is_compiled = callback is not None and callback() not in (None, False)
        return is_compiled or core._get_tracing_state() is not None

    def _entered(self, module: Module, _args: tuple[object, ...]) -> None:
        """A module is called."""
        if self._is_mine():
            has_formula = self._formulas.is_known(module)
            self._calls.append(_Call(id(module), has_formula=has_formula))

    def _left(
        self, module: Module, args: tuple[object, ...], kwargs: dict[str, object], result: object
    ) -> None:
        """A module returns."""
        if self._is_mine():
            self.guard.run(self._note, module, args, kwargs, result)

    def _note(self, module: Module, args: Any, kwargs: Any, result: object) -> None:
        """Keep what one call shows."""
        call = self._calls.pop()
        while call.module != id(module):  # calls inside it that ended by an exception
            call = self._calls.pop()
        with self._torch._C.DisableTorchFunction():  # a subclass of Tensor runs no code of its own
            given = read_tensors({**dict(enumerate(args)), **kwargs}, self._torch)
            returned = read_tensors(result, self._torch)
        seen = self._current.get(id(module))
        if seen is None or seen.reference() is not module:
            seen = self._current[id(module)] = Observed(module, self._step)
        seen.calls += 1
        seen.given, seen.returned = given, returned
        shapes = Shapes(dict(given.named), tuple([shape for _, shape in returned.named]))
        flops = self._formulas.count(module, shapes)
        is_exact = flops is not None
        if flops is None:
            flops = call.flops
            is_chain = self._formulas.is_chain(module) or unwrap(module) is not module
            is_exact = is_chain and not call.is_incomplete and flops is not None
        self._add(seen, self._calls[-1] if self._calls else None, flops, is_exact=is_exact)

    def _count_function(self, flops: int) -> None:
        """A function was called by the module in progress, unless its formula knows of it."""
        if self._is_mine() and self._calls and not self._calls[-1].has_formula:
            call = self._calls[-1]
            call.flops = (call.flops or 0) + flops

    def _add(
        self, seen: Observed, outer: _Call | None, flops: int | None, *, is_exact: bool
    ) -> None:
        """Count a call's operations for the module and for the call around it."""
        seen.is_lower_bound = seen.is_lower_bound or not is_exact
        if flops is not None:
            seen.flops = (seen.flops or 0) + flops
        if outer is not None:
            outer.is_incomplete = outer.is_incomplete or not is_exact
            if flops is not None:
                outer.flops = (outer.flops or 0) + flops


def is_compiled(module: Module) -> bool:
    """Whether torch.compile stands before a module's forward."""
    return "_orig_mod" in module._modules or vars(module).get("_compiled_call_impl") is not None


def _has_compiled() -> bool:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames"))


def _eager_modules(root: Module, torch: ModuleType) -> list[Any]:
    """The modules below and including one that can be looked into, each once."""
    found: dict[int, Any] = {}
    waiting = [root]
    is_closed = _closed_to_hooks(torch)
    while waiting:
        module = waiting.pop()
        if id(module) in found or is_closed(module):
            continue
        found[id(module)] = module
        waiting += [child for child in list(module._modules.values()) if child is not None]
    return list(found.values())


def _closed_to_hooks(torch: ModuleType) -> Callable[[Any], bool]:
    """Tells the modules that a hook would harm, together with all below them.

    A transformer layer in evaluation takes another path through its kernels when it sees a hook.
    """
    scripted = torch.jit.ScriptModule
    fast = torch.nn.TransformerEncoderLayer

    def is_closed(module: Module) -> bool:
        takes_fast_path = isinstance(module, fast) and not module.training
        return takes_fast_path or isinstance(module, scripted) or is_compiled(module)

    return is_closed
