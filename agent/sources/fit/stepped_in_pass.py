"""Which optimizers step inside the backward pass, and steps them so in the pass of a copy.

Rules of this file: what sees runs in the training thread, on request, and keeps weak references;
what steps runs on copies alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..shared.gradients import any_gradient
from ..shared.recording import Recording
from ..torch_types import Optimizer


class SteppedInPass:
    """Sees which optimizers step while a backward pass is in progress.

    Attributes:
        lets_go: Whether their gradients were gone as the pass had ended.
    """

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_in_pass = False
        self.lets_go = False

    def pass_begins(self) -> None:
        """A backward pass is about to begin."""
        self._is_in_pass = True

    def pass_ended(self, recording: Recording) -> None:
        """It has ended."""
        self._is_in_pass = False
        parameters = [p for o in self._optimizers for p in _parameters_of(o)]
        self.lets_go = not any_gradient(parameters, recording)

    def steps(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step."""
        if self._is_in_pass:
            self._optimizers.add(optimizer)

    def has(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer was seen to."""
        return optimizer in self._optimizers


class InPass(NamedTuple):
    """Copies of optimizers that step in the backward pass.

    Attributes:
        lets_go: Whether each gradient goes as its optimizer has stepped.
    """

    optimizers: Sequence[Any]
    lets_go: bool

    def others(self, optimizers: Sequence[Any]) -> list[Any]:
        """Those of some optimizers that are none of these."""
        own = set(map(id, self.optimizers))
        return [optimizer for optimizer in optimizers if id(optimizer) not in own]

    def watch(self, step: Callable[[Any], None]) -> list[Any]:
        """Have each step as the last of its gradients is there.

        Args:
            step: Steps one of them.

        Returns:
            The hooks, to be removed.
        """
        return [handle for one in self.optimizers for handle in self._hooks(one, step)]

    def _hooks(self, optimizer: Any, step: Callable[[Any], None]) -> list[Any]:
        parameters = [p for p in _parameters_of(optimizer) if p.requires_grad and p.is_leaf]
        waited_for = {id(parameter) for parameter in parameters}

        def came(parameter: Any) -> None:
            waited_for.discard(id(parameter))
            if waited_for:
                return
            step(optimizer)
            waited_for.update(map(id, parameters))
            for one in parameters if self.lets_go else ():
                one.grad = None

        return [p.register_post_accumulate_grad_hook(came) for p in parameters]


def _parameters_of(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
