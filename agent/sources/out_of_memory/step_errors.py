"""Sees the exceptions that leave an optimizer's step, which torch has no hook for.

Rules of this file: runs in the training threads. torch calls a class's own `step` from a function
that it puts around it, the one that also calls the hooks; that function holds the step in a cell.
While recording is on, the cell holds ours, which calls the step and passes on its result or
exception unchanged. No attribute of the user's classes or objects changes.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from ..calls import dynamo
from ..torch_types import Optimizer

_CELL = "func"
_DEEPEST = 8


class StepErrors:
    """Stands between torch's function around a step, and the step.

    Attributes:
        known: The classes of optimizers whose errors are seen, as far as they can be.
    """

    def __init__(self, failed: Callable[[Any], None]) -> None:
        """Begin without any.

        Args:
            failed: Called with the optimizer, in the handler of an exception that leaves a step;
                never raises.
        """
        self._failed = failed
        self._cells: dict[int, tuple[CellType, Any, Any]] = {}  # by id: the cell, theirs and ours
        self.known: set[type] = set()

    def watch(self, optimizer: Optimizer) -> None:
        """See the errors of an optimizer's steps from now on, that which is about to begin too."""
        cls = type(optimizer)
        if cls in self.known:
            return
        self.known.add(cls)
        cell = _cell_of(cls)
        if cell is not None and id(cell) not in self._cells:
            theirs = cell.cell_contents
            ours = _StandIn(theirs, self._failed)
            for code in STAND_INS:
                dynamo.leave_out(code)
            self._cells[id(cell)] = (cell, theirs, ours)
            cell.cell_contents = ours

    def stop(self) -> None:
        """Put back what was there; where somebody has put another in its place, it stays."""
        for cell, theirs, ours in self._cells.values():
            if cell.cell_contents is ours:
                cell.cell_contents = theirs
        self._cells.clear()
        self.known.clear()


class _StandIn:
    """What stands in for a step; it stays behind where the step's class is copied or pickled.

    Some libraries send classes of a script to other processes, with all that their functions hold.
    """

    def __init__(self, step: Callable[..., object], failed: Callable[[Any], None]) -> None:
        self._step: Any = step
        self._failed = failed
        self._is_compiling = sys.modules["torch"].compiler.is_dynamo_compiling
        functools.update_wrapper(self, step)

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        """As torch calls it."""
        if self._is_compiling():
            return self._step(*args, **kwargs)
        try:
            return self._step(*args, **kwargs)
        except BaseException:
            self._failed(args[0])
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        """What stands for it: the step, since the copy of a function is that function."""
        return copy.copy, (self._step,)


STAND_INS: set[CodeType] = {_StandIn.__call__.__code__}
"""The code of all that stands between torch's function and a step."""


def _cell_of(cls: type) -> CellType | None:
    """The cell that holds a class's own step; None where it does not look as expected."""
    walker = sys.modules["torch.optim.optimizer"].Optimizer.profile_hook_step(_nothing).__code__
    function = getattr(cls, "step", None)
    for _ in range(_DEEPEST):
        if not isinstance(function, FunctionType):
            return None
        if function.__code__ is walker and _CELL in walker.co_freevars:
            cell = (function.__closure__ or ())[walker.co_freevars.index(_CELL)]
            return cell if callable(cell.cell_contents) else None
        function = getattr(function, "__wrapped__", None)
    return None


def _nothing() -> None:
    """A function for torch to put its own around."""
