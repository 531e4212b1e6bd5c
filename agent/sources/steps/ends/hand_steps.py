"""Steps of a training without an optimizer of torch: known by what becomes of the gradients.

Rules of this file: runs in the training thread, around backward passes; reads which tensors are
there and how often they were written to, never what is in them, and keeps none alive.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from ...calls.backward.graph_nodes import leaf_at, node_of
from ...calls.names.class_names import places_in
from ...shared.found import found_roots
from ...shared.versions import Held, HeldAlone, held_by_modules, version_of

_T = TypeVar("_T")

_PATIENCE = 8
"""How many passes an optimizer may be there without a step before it counts as not used, where the
parameters are written to all the same."""
_MOST_PATIENCE = 8 * _PATIENCE
"""The same, where that is not seen, as it is not in an update of `parameter.data`."""

_MOST_LOOKS = 2
"""How often all modules of the process are looked for; it takes some tens of milliseconds."""
_MOST_NODES = 1000
"""How much of a graph is walked for the tensors that it comes from."""


class _Seen(NamedTuple):
    """A parameter and its gradient as a backward pass has ended."""

    parameter: Held | HeldAlone
    version: int
    gradient: int
    gradient_version: int

    def is_same(self) -> bool:
        """Whether neither has been written to, nor replaced."""
        parameter = self.parameter.find()
        if parameter is None:
            return False
        gradient = parameter.grad
        return (
            gradient is not None
            and version_of(parameter) == self.version
            and id(gradient) == self.gradient
            and version_of(gradient) == self.gradient_version
        )


class HandSteps:
    """Backward passes whose gradients no optimizer of torch has used.

    Attributes:
        is_on: Whether steps are known by this.
        has_passed: Whether a pass has ended in the step in progress.
    """

    def __init__(self) -> None:
        self.is_on = self.has_passed = False
        self._seen: list[_Seen] = []
        self._unused = 0
        self._first: tuple[Held, int] | None = None
        self._last_first: tuple[weakref.ref[Any], Held] | None = None
        self._leaves: list[Held | HeldAlone] = []
        self._held_leaves: dict[int, Held] = {}
        self._looks = _MOST_LOOKS
        self._passes = 0  # since a step ended
        self._round = 0
        self._is_foretold = self._is_marked = False
        self._has_stepped = False  # an optimizer of torch
        self._makes_gradients = True  # the pass after which patience ends

    def optimizer_stepped(self) -> None:
        """An optimizer of torch is in use after all."""
        if self._has_stepped and self._unused == 1 and not self.is_on:  # as after each pass
            self._unused = 0
            return
        self.is_on = self.has_passed = False
        self._has_stepped, self._unused = True, 0
        self._first = None
        self._round, self._is_foretold = 0, False
        self._seen.clear()

    def pass_begins(self, root: Any, *, has_optimizer: bool) -> None:
        """A backward pass is about to begin, outside of any optimizer's step.

        Passes alone do not show that an optimizer is not used: an attack on the input makes many
        before each step, as do the samples of an energy-based model. After an optimizer has stepped
        they show nothing, however many there are.

        Args:
            root: The model that was called; None where there is none.
        """
        self._unused += 1
        if self.is_on or not has_optimizer:
            self.is_on = True
        elif self._unused > _PATIENCE:
            is_over = self._unused > _MOST_PATIENCE and self._makes_gradients
            self.is_on = self._is_written(root) or (is_over and not self._has_stepped)
        elif self._first is None and self._unused > 1 and root is not None:
            self._remember(root)

    def step_marked(self) -> None:
        """The script says that a step ends: the passes in it are not those before a step."""
        self.is_on = self.is_on or self._unused > _PATIENCE
        self._is_marked, self.has_passed = True, False

    def _remember(self, root: Any) -> None:
        """Note how often the model's first parameter was written to.

        To find that takes longer than all else here, and is done once for each model. Should it be
        another one by now, `_is_written` will see that.
        """
        known = self._last_first
        if known is not None and known[0]() is root and (found := known[1].find()) is not None:
            self._first = (known[1], version_of(found))
            return
        first = next(held_by_modules(root), None)
        if first is not None:
            self._last_first = (weakref.ref(root), first[0])
            self._first = (first[0], version_of(first[1]))

    def _is_written(self, root: Any) -> bool:
        """Whether the model's first parameter has been written to since the optimizer's step."""
        first = None if root is None else next(held_by_modules(root), None)
        if first is None:
            return False
        held, parameter = first
        if self._first is None or self._first[0].find() is not parameter:
            self._first = (held, version_of(parameter))
        return bool(version_of(parameter) != self._first[1])

    def pass_ended(self, root: Any, *, creates_graph: bool) -> None:
        """A backward pass has ended.

        Args:
            root: The model that was called; None where there is none.
            creates_graph: Whether its results are to be differentiated again: then it is part of
                a loss.
        """
        if self._unused == _MOST_PATIENCE and root is not None and not self.is_on:
            self._makes_gradients = any(
                p.is_leaf and p.grad is not None for _, p in held_by_modules(root)
            )
        if not self.is_on or creates_graph or self._is_marked:
            return
        self.has_passed = True
        self._passes += 1
        self._seen.clear()
        for held, parameter in self._ends_of_leaves() if root is None else _ends_in(root):
            gradient = parameter.grad
            self._seen.append(
                _Seen(held, version_of(parameter), id(gradient), version_of(gradient))
            )

    def _ends_of_leaves(self) -> list[tuple[Held | HeldAlone, Any]]:
        """The first and the last leaf that has a gradient."""
        found = [(held, leaf) for held in self._leaves if (leaf := held.find()) is not None]
        return _ends(
            [(held, leaf) for held, leaf in found if leaf.is_leaf and leaf.grad is not None]
        )

    def meet_leaves(self, losses: Iterable[Any]) -> None:
        """A pass of a training without any call of a module begins: which tensors does it go to?"""
        self._leaves = [self._held(leaf) for leaf in leaves_of(losses)]

    def _held(self, leaf: Any) -> Held | HeldAlone:
        """A leaf, by the module that holds it, as one does of which only methods are called."""
        held = self._held_leaves.get(id(leaf))
        is_known = held is not None and held.find() is leaf
        if not is_known and self._looks and isinstance(leaf, sys.modules["torch"].nn.Parameter):
            self._looks -= 1
            all_held = (held for root in found_roots() for held, _ in held_by_modules(root))
            self._held_leaves = {held.identity: held for held in all_held}
            held = self._held_leaves.get(id(leaf))
        return HeldAlone(weakref.ref(leaf)) if held is None or held.find() is not leaf else held

    def has_ended(self) -> bool:
        """Whether the step is over, now that something begins that may be the next one's.

        A script that changes `parameter.data` and removes the gradients behind the next step's call
        shows that only then. After so many passes as it has done so it will do so again.
        """
        if not (self.is_on and self.has_passed):
            return False
        is_unused = any(seen.is_same() for seen in self._seen)
        if is_unused and not (self._round and self._passes >= self._round):
            return False
        self._is_foretold = is_unused
        self._end(keeps_seen=is_unused)
        return True

    def has_ended_before_pass(self) -> bool:
        """Whether the step is over, which shows only now that a pass begins behind a call."""
        is_unused = any(seen.is_same() for seen in self._seen)
        if self._is_foretold:
            self._is_foretold = False
            if is_unused:  # they are added up
                self._round = 0
            return False
        if not (self.is_on and self.has_passed) or is_unused:
            return False
        self._round = self._passes
        self._end()
        return True

    def _end(self, *, keeps_seen: bool = False) -> None:
        """The step is over."""
        self.has_passed, self._passes = False, 0
        if not keeps_seen:
            self._seen.clear()


def _ends_in(root: Any) -> list[tuple[Held, Any]]:
    """The first and the last parameter of a model that has a gradient.

    Fast weights stand among the parameters and are none: torch warns where one asks for their
    gradients.
    """
    places = {id(p): (m, n, p) for m, n, p in places_in(root) if p.is_leaf and p.grad is not None}
    return [
        (Held(weakref.ref(module), name, id(parameter)), parameter)
        for module, name, parameter in _ends(list(places.values()))
    ]


def _ends(things: list[_T]) -> list[_T]:
    """The first and the last."""
    return things[:1] + things[1:][-1:]


def leaves_of(losses: Iterable[Any]) -> Iterator[Any]:
    """The tensors that a graph comes from, as far as it is walked."""
    waiting = [node for loss in losses if (node := node_of(loss)) is not None]
    met = set(waiting)
    while waiting and len(met) < _MOST_NODES:
        node = waiting.pop()
        leaf = leaf_at(node)
        if leaf is not None:
            yield leaf
        for before, _ in node.next_functions:
            if before is not None and before not in met:
                met.add(before)
                waiting.append(before)
