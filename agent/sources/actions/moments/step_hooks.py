"""Hooks around the steps of the optimizers, for actions that last.

Rules of this file: they are put on and taken off in the training thread between two steps, where
no list of hooks is being walked over. Gradients of an optimizer that is given a closure exist only
once that has run, so the work is then done at the end of the closure. Faults of ours
end the action and reach nobody; what an action is there to raise is let out. What is done after a
step is done whenever its beginning was, even where the agent leaves in between.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .....messages.about.act import Change
from .....safety.guard import Guard
from ...torch_types import Optimizer
from ..ledger import Undone

Work = Callable[[Any], None]


class StepHooks:
    """Work before, and after, each step of some optimizers.

    Attributes:
        is_on: Whether it is still wanted.
        value: What is in force, for the next action of the kind to tell as what was before.
    """

    def __init__(
        self,
        kind: str,
        value: str,
        *,
        before: Work | None = None,
        with_gradients: Work | None = None,
        after: Work | None = None,
        lets_out: tuple[type[Exception], ...] = (),
    ) -> None:
        """Prepare.

        Args:
            before: Called with the optimizer as its step begins.
            with_gradients: The same, once the gradients of the step are there.
            after: The same, as the step has ended.
            lets_out: What the work may raise in the training.
        """
        self.value = value
        self.is_on = False
        self.guard = Guard(f"act {kind}", self.end)
        self._before = before
        self._with_gradients = with_gradients
        self._after = after
        self._lets_out = lets_out
        self._handles: list[Any] = []

    def put_on(self, optimizers: list[Optimizer]) -> None:
        """Begin."""
        self.is_on = True
        for optimizer in optimizers:
            self._handles.append(optimizer.register_step_pre_hook(self._around))
            if self._after is not None:
                self._handles.append(optimizer.register_step_post_hook(self._ended))

    def end(self) -> None:
        """Do nothing any more; in any thread."""
        self.is_on = False

    def take_off(self) -> None:
        """Take the hooks off."""
        self.is_on = False
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _around(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """A step is about to begin; gives the arguments that it shall have, or None."""
        if not self.is_on:
            return None
        if self._before is not None:
            self._run(self._before, optimizer)
        work = self._with_gradients
        if work is None:
            return None
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._run(work, optimizer)
            return None

        def run_closure() -> Any:
            result = closure()
            self._run(work, optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": run_closure}
        return (args[0], run_closure, *args[2:]), kwargs

    def _ended(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """A step has ended."""
        if self._after is not None:
            self._run(self._after, optimizer)

    def _run(self, work: Work, optimizer: Optimizer) -> None:
        """Do the work; a fault of ours never reaches the training."""
        try:
            work(optimizer)
        except self._lets_out:
            raise
        except Exception:  # noqa: BLE001 - the rim
            self.guard.fault()


def exchange(
    hooks: dict[str, StepHooks],
    kind: str,
    new: StepHooks | None,
    optimizers: list[Optimizer],
    *,
    what: str,
    usual: str | None = None,
) -> tuple[Change, Callable[[], Undone]]:
    """Put hooks in the place of those of their kind, between two steps.

    Args:
        what: What they change.
        usual: What is in force without any.

    Returns:
        The change, and what puts the old ones back.
    """
    old = _replace(hooks, kind, new, optimizers)
    before, after = old.value if old else usual, new.value if new else None
    references = [weakref.ref(optimizer) for optimizer in optimizers]

    def undo() -> Undone:
        alive = [there for reference in references if (there := reference()) is not None]
        _replace(hooks, kind, old, alive)
        return Undone((Change(what=what, before=after, after=before),))

    return Change(what=what, before=before, after=after), undo


def _replace(
    hooks: dict[str, StepHooks], kind: str, new: StepHooks | None, optimizers: list[Optimizer]
) -> StepHooks | None:
    """Take the old ones off and put the new ones on; returns the old ones."""
    old = hooks.pop(kind, None)
    if old is not None:
        old.take_off()
    if new is not None:
        hooks[kind] = new
        new.put_on(optimizers)
    return old
