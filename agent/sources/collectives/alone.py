"""Keeps code that one rank alone runs out of collectives, which would wait for the other ranks.

Rules of this file: runs in the thread of an eval. A collective is refused before torch has counted
it; what would leave a module of several ranks half-way, such as the forward pass of
DistributedDataParallel, is refused as a whole. Methods and functions of torch are replaced only
while such code runs, and pass the calls of all other threads through; what is called by the
dispatcher, as functional collectives and all that C++ calls for, is met by a mode of that thread.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..stand_in import StandIn
from ..torch_types import ProcessGroup
from .catching.methods import MethodStandIn
from .catching.operations import OPERATIONS

_C10D = "torch._C._distributed_c10d"
_WORLD = "torch.distributed.distributed_c10d"
_MADE_BY = ("_new_group_with_tag", "split_group")
_WHOLE = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "_pre_forward"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "", "_root_pre_forward"),
    ("torch.distributed.fsdp._fully_shard._fsdp_state", "FSDPState", "_root_pre_forward"),
)
"""What begins a forward pass that all ranks must take part in."""
_SPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"})
_TRACED = "torch._subclasses."
_HARMLESS = frozenset({"wait_tensor"})
_WAY_OUT = "`probing -t all eval` runs code on all ranks at one step"


class AloneCode:
    """The code of this process that no other rank runs."""

    def __init__(self) -> None:
        self._threads: list[int] = []
        self._stand_ins: list[StandIn] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse what waits for other ranks, in this thread, where the job has several."""
        if not _has_others():
            yield
            return
        me = threading.get_ident()
        modes: Any = sys.modules["torch.utils._python_dispatch"]
        self._enter(me)
        modes._push_mode(_mode())
        try:
            yield
        finally:
            modes._pop_mode()
            self._leave(me)

    def _enter(self, me: int) -> None:
        """One more thread runs such code; the first has functions of torch replaced."""
        with self._lock:
            if not self._threads:
                self._stand_ins = [*self._methods(), *self._functions()]
                for stand_in in self._stand_ins:
                    stand_in.start()
            self._threads.append(me)

    def _leave(self, me: int) -> None:
        """It is done; the last has them put back."""
        with self._lock:
            self._threads.remove(me)
            while not self._threads and self._stand_ins:
                self._stand_ins.pop().stop()

    def _methods(self) -> Iterator[MethodStandIn]:
        """What stands in for the methods by which collectives are called from Python."""
        c10d: Any = sys.modules[_C10D]
        named = {operation.method: operation.op for operation in OPERATIONS}
        named["_start_coalescing"] = "a batch of collectives"
        for owner in (c10d.ProcessGroup, c10d.Backend):
            for method, op in named.items():
                yield MethodStandIn(owner, method, _Refusal(self._threads, op))

    def _functions(self) -> Iterator[StandIn]:
        """What stands in for functions that do more than one collective."""
        world: Any = sys.modules[_WORLD]

        def make(original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
            if threading.get_ident() in self._threads:
                raise _refused("a new process group", world.get_world_size())
            return original(*args, **kwargs)

        def call(original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
            if threading.get_ident() in self._threads:
                _refuse_forward(args[0])
            return original(*args, **kwargs)

        for name in _MADE_BY:
            yield StandIn(world, name, make)
        for module, cls, name in _WHOLE:
            owner = sys.modules.get(module)
            if owner is not None:
                yield StandIn(getattr(owner, cls, owner) if cls else owner, name, call)


class _Refusal:
    """Around one method of ``ProcessGroup``; see `methods.Around`, but for the refusal."""

    def __init__(self, threads: list[int], op: str) -> None:
        self._threads = threads
        self._op = op

    def begin(
        self, target: ProcessGroup, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """Refuse it in the thread of an eval; leave it alone in all others.

        Raises:
            RuntimeError: Others would have to call it, too.
        """
        if threading.get_ident() in self._threads and target.size() > 1:
            raise _refused(self._op, target.size())

    def ended(self, begun: object, result: object) -> None:
        """Nothing is begun."""

    def failed(self, begun: object, error: BaseException) -> None:
        """Nothing is begun."""


def _mode() -> Any:
    """A mode of torch's dispatcher that refuses collectives, whoever calls for them.

    One with tensors of a class that dispatches itself, as DTensor, is handed to that class, whose
    own calls come here again; with tensors that are only traced nothing is sent.
    """
    modes: Any = sys.modules["torch.utils._python_dispatch"]
    usual: Any = sys.modules["torch._C"]._disabled_torch_dispatch_impl

    class Refusing(modes.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self,
            func: Any,
            types: Iterable[Any],
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> Any:
            if any(cls.__module__.startswith(_TRACED) for cls in types):
                return func(*args, **(kwargs or {}))
            if func.namespace in _SPACES and func._opname not in _HARMLESS:
                size = _size_in(args)
                if size > 1:
                    raise _refused(func._opname.rstrip("_"), size)
            if any(cls.__torch_dispatch__ is not usual for cls in types):
                return NotImplemented
            return func(*args, **(kwargs or {}))

    return Refusing()


def _size_in(arguments: Iterable[object]) -> int:
    """How many ranks the group has that is among the arguments of an operator."""
    world: Any = sys.modules[_WORLD]
    group_class: Any = sys.modules[_C10D].ProcessGroup
    for argument in arguments:
        try:
            if isinstance(argument, group_class):
                return int(argument.size())
            if isinstance(argument, sys.modules["torch"].ScriptObject):
                return int(group_class.unbox(argument).size())
            if isinstance(argument, str):
                return int(world._resolve_process_group(argument).size())
        except (RuntimeError, AttributeError, ValueError, TypeError):  # it names something else
            continue
    return int(world.get_world_size())


def _refuse_forward(target: Any) -> None:
    """Refuse a forward pass of a model that several ranks have together.

    Raises:
        RuntimeError: It is one that waits for them.
    """
    world: Any = sys.modules[_WORLD]
    torch: Any = sys.modules["torch"]
    size = world.get_world_size(getattr(target, "process_group", None))
    name = type(target).__name__
    if name == "DistributedDataParallel":
        is_alone = not (torch.is_grad_enabled() and target.require_backward_grad_sync)
        if size == 1 or is_alone:
            return
        name = f"{name} (under torch.no_grad() it may be called)"
    elif size == 1:
        return
    raise _refused(f"the forward pass of {name}", size)


def _refused(what: str, size: int) -> RuntimeError:
    """Why it was not entered, and what to do instead."""
    return RuntimeError(
        f"{what} was not entered: it waits for all {size} ranks of its process group, and this code"
        f" runs on one by itself, so the job would have hung; {_WAY_OUT}"
    )


def _has_others() -> bool:
    """Whether this process is one of several ranks."""
    distributed: Any = sys.modules.get("torch.distributed")
    is_there = distributed is not None and distributed.is_available()
    return bool(is_there and distributed.is_initialized() and distributed.get_world_size() > 1)
