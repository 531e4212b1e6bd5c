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
        kind: What it is the one of: an optimizer has one of each kind.
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
        self.kind = kind
        self.value = value
        self.is_on = False
        self.guard = Guard(f"act {kind}", self.end)
        self._before = before
        self._with_gradients = with_gradients
        self._after = after
        self._lets_out = lets_out
        self._handles: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    @property
    def optimizers(self) -> list[Any]:
        """Those that have the hooks."""
        there = (reference() for reference in self._handles.keyrefs())
        return [optimizer for optimizer in there if optimizer is not None]

    @property
    def hangs(self) -> bool:
        """Whether anything of it is there still, be it wanted or not."""
        return bool(self._handles)

    def is_on_any(self, optimizers: list[Optimizer]) -> bool:
        """Whether one of these has the hooks."""
        return any(optimizer in self._handles for optimizer in optimizers)

    def put_on(self, optimizers: list[Optimizer]) -> None:
        """Begin, or begin with more of them."""
        self.is_on = True
        for optimizer in optimizers:
            handles = self._handles.setdefault(optimizer, [])
            handles.append(optimizer.register_step_pre_hook(self._around))
            if self._after is not None:
                handles.append(optimizer.register_step_post_hook(self._ended))

    def end(self) -> None:
        """Do nothing any more; in any thread."""
        self.is_on = False

    def take_off(self, optimizers: list[Optimizer] | None = None) -> list[Any]:
        """Take the hooks off these, or all; returns those that had them."""
        had = [o for o in self.optimizers if optimizers is None or o in optimizers]
        for optimizer in had:
            for handle in self._handles.pop(optimizer):
                handle.remove()
        self.is_on = self.is_on and self.hangs
        return had

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


def found(hooks: list[StepHooks], kind: str, optimizers: list[Optimizer]) -> list[StepHooks]:
    """Those of a kind that are on some of these optimizers."""
    return [one for one in hooks if one.kind == kind and one.is_on_any(optimizers)]


def exchange(
    hooks: list[StepHooks],
    kind: str,
    new: StepHooks | None,
    optimizers: list[Optimizer],
    *,
    what: str,
    usual: str | None = None,
) -> tuple[Change, Callable[[], Undone]]:
    """Put hooks in the place of those of their kind, between two steps.

    What is on other optimizers stays there.

    Args:
        hooks: All that are in force.
        what: What they change.
        usual: What is in force without any.

    Returns:
        The change, and what puts the old ones back, where they were.
    """
    old = found(hooks, kind, optimizers)
    lost = [(one, [weakref.ref(o) for o in one.take_off(optimizers)]) for one in old]
    if new is not None:
        new.put_on(optimizers)
    _keep(hooks, new)
    before = ", ".join(dict.fromkeys(one.value for one in old)) or usual
    after = new.value if new else None

    def undo() -> Undone:
        if new is not None:
            new.take_off()
        for one, references in lost:
            one.put_on([there for reference in references if (there := reference()) is not None])
            _keep(hooks, one)
        _keep(hooks, None)
        return Undone((Change(what=what, before=after, after=before),))

    return Change(what=what, before=before, after=after), undo


def _keep(hooks: list[StepHooks], more: StepHooks | None) -> None:
    """Keep those that hang on something, and one more."""
    there = [one for one in hooks if one.hangs and one is not more]
    hooks[:] = [*there, more] if more is not None and more.hangs else there
