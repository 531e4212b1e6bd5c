"""Waits for the first use of what is recorded, so that a process which never trains pays nothing.

Rules of this file: runs in whichever thread comes first, once. What stands in stays until the
recording's own stand-ins take its place, so that other threads that come meanwhile wait there, and
passes every call through after that. A source whose first event can come before any module is
called has a wire here; whatever else is recorded needs none, because the agent records all of it
from the first wire on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...own_files import is_ours
from ...safety.guard import Guard
from ...script import marks
from ..sources.stand_in import WAY, StandIn, Wrapper
from .no_training import NoTraining

_WIRES = (
    ("torch.nn.modules.module", "Module", "__call__"),
    ("torch.autograd", "", "_engine_run_backward"),
    ("torch.optim.optimizer", "Optimizer", "__init__"),
    ("torch.amp.grad_scaler", "GradScaler", "scale"),
    ("torch.utils.data.dataloader", "DataLoader", "__iter__"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__"),
    ("torch.distributed.distributed_c10d", "", "_new_process_group_helper"),
)
"""Module, class and name of what a training begins with, each of them possibly first."""
_MAY_BE_OUT_OF_MEMORY = (MemoryError, OSError, RuntimeError)


class AwaitedTraining(NoTraining):
    """Stands in until something happens that is recorded."""

    def __init__(self, record: Callable[[], None]) -> None:
        """Prepare, and change nothing yet.

        Args:
            record: Begins to record: puts what records in the place of this, and closes this.
        """
        super().__init__()
        self._record = record
        self._guard = Guard("first use", self.close)
        self._wires = [
            _Wire(owner, name, self.begin)
            for module, owner_name, name in _WIRES
            if (owner := _owner(module, owner_name)) is not None
        ]
        self._marks = _FirstMark(self.begin)

    def begin(self) -> None:
        """Something is about to be recorded, or somebody asks; never raises."""
        self._guard.run(self._record)
        if self._guard.faults:
            self._guard.run(self.close)

    def problems(self) -> list[str]:
        """What went wrong, one sentence each."""
        return [self._guard.problem] if self._guard.problem else []

    def start(self, *, late: bool = False) -> None:
        """Wait from now on."""
        for wire in self._wires:
            wire.start()
        if marks.recorder is None:
            marks.recorder = self._marks

    def pause(self) -> None:
        """Wait no more."""
        for wire in self._wires:
            wire.stop()
        if marks.recorder is self._marks:
            marks.recorder = None

    def close(self) -> None:
        """Wait no more."""
        self.pause()

    def ended_by(self, error: BaseException) -> None:
        """The process ends before its first step: out of memory, that is worth a record."""
        if isinstance(error, _MAY_BE_OUT_OF_MEMORY):
            from ..sources.out_of_memory.errors import read_oom

            if read_oom(error) is not None:
                self.begin()

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""
        return [sentence for wire in self._wires for sentence in wire.remains()]


class _Wire(StandIn):
    """One function of torch that begins the recording when it is first called."""

    def __init__(self, owner: Any, name: str, begin: Callable[[], object]) -> None:
        super().__init__(owner, name, self._called, [self._now, begin])
        self._begin = begin
        self._made: Wrapper | None = None

    def _behind(self, original: Callable[..., object]) -> Callable[..., Any]:
        """What records now, for torch.compile's modules, which keep this function as their own.

        Whatever is not ours may have kept it to call it, and must not be called once more.
        """
        now: Any = None if self.wrapper is not None else self._now()
        file = getattr(getattr(now, "__code__", None), "co_filename", "")
        return now if is_ours(file) else original

    def _make(self, original: Callable[..., object]) -> Wrapper:
        wrapper = self._made = super()._make(original)
        vars(wrapper)[WAY] = self._make_way
        return wrapper

    def _make_way(self, found: Any) -> Any:
        """What it stands in for, if that is what was found: its place is about to be taken.

        A thread that comes in here meanwhile waits until that is done. What somebody has put over
        ours may bear our attributes.
        """
        if found is not self.wrapper:
            return found
        self.wrapper = None
        return self.original

    def _called(self, original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """The first call, which is to be recorded already."""
        is_outermost = self.wrapper is None or self._now() is self.wrapper
        self._begin()
        now = self._now()
        # Another one that lies over ours has called it, and must not be called once more; and ours
        # is still there for a signal's handler that comes as its own thread begins to record.
        return (now if is_outermost and now is not self._made else original)(*args, **kwargs)

    def _now(self) -> Any:
        """What is in the place of the function."""
        return vars(self.owner)[self.name]


class _FirstMark:
    """What `probing.script.marks` calls; hands the first mark to the recording it begins."""

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin

    def _recorder(self) -> marks.Recorder | None:
        self._begin()
        return None if marks.recorder is self else marks.recorder

    def step_ended(self) -> None:
        """See `marks.step`."""
        if (recorder := self._recorder()) is not None:
            recorder.step_ended()

    def span_began(self, name: str, depth: int) -> object:
        """See `marks.span`."""
        recorder = self._recorder()
        return None if recorder is None else recorder.span_began(name, depth)

    def span_ended(self, begun: object, *, failed: bool) -> None:
        """See `marks.span`."""
        if (recorder := self._recorder()) is not None:
            recorder.span_ended(begun, failed=failed)

    def measured(self, values: dict[str, object]) -> None:
        """See `marks.metric`."""
        if (recorder := self._recorder()) is not None:
            recorder.measured(values)

    def memory_seen(self, label: str, cleaning: marks.Cleaning) -> None:
        """See `marks.see_memory`."""
        if (recorder := self._recorder()) is not None:
            recorder.memory_seen(label, cleaning)


def _owner(module: str, name: str) -> Any:
    """A module of torch that is loaded, or a class in it; None where there is none."""
    found = sys.modules.get(module)
    return getattr(found, name, None) if name else found
