"""Sees the collectives that torch calls from C++, by kernels of ours in its dispatcher.

Rules of this file: a kernel is put where no kernel of torch's does anything, at the dispatch key
BackendSelect, which every call passes on its way to the backend, with autograd or below it, and
hands every call on to what would have been called without it. It costs some ten microseconds, so it
is put there only once a caller in C++ is expected or has been met. Calls that come from Python have
been seen already, and pass; so do those with tensors that are only traced.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from .....safety.guard import Guard
from ...calls import dynamo
from ...shared.recording import Recording
from ...torch_types import Tensor
from ..call_tensors import flat_tensors
from ..entered import Call
from ..groups import Group, Groups
from ..rows import CollectiveRows
from .operations import FUNCTIONAL, OPERATIONS, Operation

_PATIENCE_S = 2.0
_LEFT: list[Any] = []
"""What could not be taken away, in this process: torch may be on its way into it."""
_POLL_S = 0.001
_KEY = "BackendSelect"
_SENDING = "_c10d_functional::isend"
_Maker = Callable[[Any], Callable[..., Any]]


class Kernels:
    """Puts them there, and takes them away again.

    Attributes:
        issued_ns: When torch called the last of them from C++.
    """

    def __init__(
        self, recording: Recording, groups: Groups, rows: CollectiveRows, guard: Guard
    ) -> None:
        self._recording = recording
        self._groups = groups
        self._rows = rows
        self._guard = guard
        self._libraries: list[Any] = []
        self._inside: set[int] = set()
        self._reductions: dict[int, str] = {}
        self._sending: dict[int, Call | None] = {}
        self._is_on = self._are_there = self._is_functional = False
        helpers: Any = (
            *(self._call, self._begin, self._reduction),
            *(self._issued, self._sent, self._awaited, self._waited),
        )
        self._helpers = [helper.__func__.__code__ for helper in helpers]
        self.issued_ns = 0
        torch: Any = sys.modules["torch"]
        c10d: Any = sys.modules["torch._C._distributed_c10d"]
        self._unbox_group: Any = getattr(c10d.ProcessGroup, "unbox", None)
        self._unbox_work: Any = getattr(c10d.Work, "unbox", None)
        kinds = c10d.ReduceOp.RedOpType.__members__.values()
        self._reduction_kinds = {int(kind): kind for kind in kinds}
        keys = torch._C.DispatchKey
        self._beyond = torch._C._dispatch_keyset_full_after(keys.BackendSelect)
        self._traced = keys.Meta

    @property
    def is_on(self) -> bool:
        """Whether calls from C++ are recorded."""
        return self._is_on

    @property
    def are_there(self) -> bool:
        """Whether any are in torch's dispatcher."""
        return bool(self._libraries)

    @property
    def _can_be_on(self) -> bool:
        """Whether this torch can tell what they are called with."""
        return self._unbox_group is not None and self._unbox_work is not None and not _LEFT

    def watch(self) -> None:
        """Start as soon as a functional collective is called; costs nothing until then."""
        if self._libraries or not self._can_be_on:
            return
        for space, names in FUNCTIONAL.items():
            found = dict.fromkeys(names, self._functional)
            self._libraries.append(self._put(space, found))

    def start(self) -> None:
        """Put them there; does nothing where this torch cannot tell what they are called with."""
        if not self._can_be_on:
            return
        if not self._are_there:
            made = {o.kernel: self._maker(o) for o in OPERATIONS if o.kernel}
            self._libraries.append(self._put("c10d", made))
            self._libraries.append(self._put("_c10d_functional", {"wait_tensor": self._waiting}))
            self._are_there = True
        self._is_on = True

    def stop(self) -> None:
        """Have them pass calls on and do nothing else."""
        self._is_on = False

    def close(self, *, is_resting: bool = False) -> None:
        """Take them away, once no thread is inside one.

        While a pass goes on, torch may have chosen one and not yet come to it: then it would find
        nothing there, and raise. They stay, and pass every call on; so they do where functional
        collectives are called, which modules do at any time.

        Args:
            is_resting: Whether no thread is inside a pass or a step, nor comes into one meanwhile.
        """
        self._is_on = False
        if not self._libraries:  # there were none, or they were dealt with a moment ago
            return
        end = time.monotonic() + _PATIENCE_S
        while self._inside and time.monotonic() < end:
            time.sleep(_POLL_S)
        self._are_there = False
        libraries, self._libraries = self._libraries, []
        if not is_resting or self._inside or self._is_functional:
            _LEFT.extend(libraries)
            return
        while libraries:
            libraries.pop()._destroy()

    @staticmethod
    def remains() -> list[str]:
        """What stays in place after `close`, one sentence each."""
        return [
            "kernels of torch.distributed, because the training was inside of torch. They pass"
            " every call through unchanged, until the process ends."
        ] * bool(_LEFT)

    def _put(self, space: str, makers: Mapping[str, _Maker]) -> Any:
        """Put kernels at operators of one library, as far as this torch has them."""
        torch: Any = sys.modules["torch"]
        operators = getattr(torch.ops, space)
        library = torch.library.Library(space, "IMPL")
        try:
            for name, maker in makers.items():
                found = getattr(operators, name, None)
                if found is not None:
                    kernel = maker(found.default)
                    dynamo.leave_out_with_calls((kernel.__code__, *self._helpers))
                    library.impl(name, kernel, _KEY, with_keyset=True)
        except BaseException:
            library._destroy()
            raise
        return library

    def _functional(self, found: Any) -> Callable[..., Any]:
        """The kernel of one functional operator, which calls for a collective from C++.

        What `isend` gives to be waited for is none of the tensors that are sent.
        """
        inside, beyond, redispatch = self._inside, self._beyond, found.redispatch
        reductions, sending = self._reductions, self._sending
        sends = found._schema.name == _SENDING

        def kernel(keys: Any, *args: Any, **kwargs: object) -> Any:
            me = threading.get_ident()
            is_outer = me not in inside
            inside.add(me)
            try:
                self._is_functional = True
                if not self._is_on and self._recording.collectives is not None:
                    self._guard.run(self.start)
                if len(args) > 1 and type(args[1]) is str:
                    reductions[me] = args[1]
                if not sends:
                    return redispatch(keys & beyond, *args, **kwargs)
                sending[me] = None
                result = redispatch(keys & beyond, *args, **kwargs)
                self._guard.run(self._sent, sending[me], result)
                return result
            finally:
                reductions.pop(me, None)
                sending.pop(me, None)
                if is_outer:
                    inside.discard(me)

        return kernel

    def _maker(self, operation: Operation) -> _Maker:
        """What makes the kernel of one operator."""
        return lambda found: self._kernel(operation, found)

    def _kernel(self, operation: Operation, found: Any) -> Callable[..., Any]:
        beyond, traced = self._beyond, self._traced
        inside, threads, redispatch = self._inside, self._recording.threads, found.redispatch

        def kernel(keys: Any, *args: Any) -> Any:
            me = threading.get_ident()
            is_outer = me not in inside
            inside.add(me)
            try:
                if not self._is_on or threads.state.is_in_collective or keys.has(traced):
                    return redispatch(keys & beyond, *args)
                call = self._begin(operation, args)
                result = self._call(redispatch, keys & beyond, args, call)
                if call is not None:
                    self._guard.run(self._issued, call, args[0], result)
                return result
            finally:
                if is_outer:
                    inside.discard(me)

        return kernel

    def _waiting(self, found: Any) -> Callable[..., Any]:
        """The kernel of the operator that waits for a functional collective."""
        beyond, traced, redispatch = self._beyond, self._traced, found.redispatch
        inside = self._inside

        def kernel(keys: Any, *args: Any) -> Any:
            me = threading.get_ident()
            is_outer = me not in inside
            inside.add(me)
            try:
                call = None
                if self._is_on and not keys.has(traced):
                    call = self._awaited(args[0])
                start = time.perf_counter_ns()
                result = self._call(redispatch, keys & beyond, args, call)
                if call is not None:
                    self._guard.run(self._waited, call, start)
                return result
            finally:
                if is_outer:
                    inside.discard(me)

        return kernel

    def _call(
        self,
        redispatch: Callable[..., object],
        keys: object,
        args: tuple[object, ...],
        call: Call | None,
    ) -> Any:
        """Hand a call on to what torch has for it."""
        try:
            return redispatch(keys, *args)
        except BaseException as error:
            if call is not None:
                self._guard.run(self._rows.failed, call, error)
            raise

    def _begin(self, operation: Operation, args: tuple[Any, ...]) -> Call | None:
        """Torch is about to call it; None where that cannot be recorded."""
        frame = sys._getframe(1).f_back  # None in a thread of the engine's own
        try:
            group = self._groups.of(self._unbox_group(args[operation.group]))
            self.issued_ns = time.perf_counter_ns()
            return self._rows.open(
                operation,
                group,
                args[operation.tensors or 0],
                frame,
                reduce_op=self._reduction(operation, args),
                root=None if operation.root_at is None else args[operation.root_at],
                peer=None if operation.peer_at is None else _peer(group, args[operation.peer_at]),
                is_async=True,
            )
        except Exception:  # noqa: BLE001 - never harm the host
            self._guard.fault()
            return None
        finally:
            del frame

    def _reduction(self, operation: Operation, args: tuple[object, ...]) -> Any:
        """What it reduces by: as who called said it, else as the backend is told."""
        named = self._reductions.get(threading.get_ident())
        if named is not None or operation.reduction_at is None:
            return named
        told = getattr(args[operation.reduction_at], "op", None)  # an older torch's has none
        return None if told is None else self._reduction_kinds.get(told())

    def _issued(self, call: Call, outputs: Any, result: object) -> None:
        """Torch has called it."""
        call.outputs = tuple([_place_of(tensor) for tensor in flat_tensors(outputs)])
        work = result[-1] if isinstance(result, tuple) else result
        self._rows.issued(call, self._unbox_work(work), is_own=True)
        me = threading.get_ident()
        if me in self._sending:
            self._sending[me] = call

    def _sent(self, call: Call | None, result: Any) -> None:
        """Torch has sent something, and gives what is waited for."""
        if call is not None:
            call.outputs = (_place_of(result),)

    def _awaited(self, tensor: Tensor) -> Call | None:
        """The call that fills a tensor, if it is under way; from here on it is ours to complete."""
        under_way = self._rows.under_way
        try:
            place = _place_of(tensor)
            for key, call in under_way.copy().items():
                if place in call.outputs and call.work is not None:
                    return under_way.pop(key, None)
        except Exception:  # noqa: BLE001 - never harm the host
            self._guard.fault()
        return None

    def _waited(self, call: Call, start: int) -> None:
        """It has been waited for."""
        now, recording = time.perf_counter_ns(), self._recording
        if recording.threads.state.native_id == recording.training_thread:
            recording.rows.phases.synchronized(start, now)
        self._rows.waited(call, start, now, call.work())


def _peer(group: Group, peer: int) -> int | None:
    """The other rank; None for one that the group does not have.

    Functional messages in a smaller group come with its number in the job, which torch takes for
    that in the group.
    """
    return peer if peer < group.size else None


def _place_of(tensor: Tensor) -> int:
    """What tells the storage of a tensor from all that are there."""
    place: int = tensor.untyped_storage()._cdata
    return place
