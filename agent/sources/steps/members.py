"""Which optimizers there are, whose parameters they step, and which belong together.

Rules of this file: runs in the training thread, as an optimizer has stepped; keeps nothing alive.
Reads which parameters a model and an optimizer have, never what is in them.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

from ..calls.module_names import walk
from ..torch_types import Module, Optimizer, Tensor
from .recording import Recording
from .step_pattern import Place, StepPattern

Ids = tuple[int, int, int]

_NOT_THE_SCRIPT = ("torch.", "probing.", "contextlib.", "functools.")
_DEEPEST = 60
_FEW = 64


class _Numbered(NamedTuple):
    """An optimizer and its number."""

    reference: weakref.ref[Any]
    number: int


class _Parts(NamedTuple):
    """The parameters of a root module, by identity."""

    reference: weakref.ref[Any]
    ids: frozenset[int]


class Members:
    """Numbers the optimizers, and tells which of them are waited for.

    Attributes:
        is_fresh: Whether a model was called, or a backward pass made, since the last step of an
            optimizer.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._numbered: dict[int, _Numbered] = {}
        self._count = 0
        self._most = _FEW
        self._groups: dict[int, set[int]] = {}
        self._parts: dict[int, _Parts] = {}
        self._called: dict[int, tuple[weakref.ref[Any], Ids]] = {}
        self._roots: dict[int, list[tuple[weakref.ref[Any], Ids]]] = {}
        self.is_fresh = False

    def root_called(self, root: Module, ids: Ids) -> None:
        """A root module is called in the step in progress."""
        self.is_fresh = True
        if id(root) not in self._called:
            self._called[id(root)] = (weakref.ref(root), ids)

    def step_ended(self) -> None:
        """A step of the training has ended."""
        self._called.clear()

    def number_of(self, optimizer: Optimizer) -> int:
        """The number of an optimizer, as long as it lives."""
        known = self._numbered.get(id(optimizer))
        if known is None or known.reference() is not optimizer:
            self._count += 1
            known = _Numbered(weakref.ref(optimizer), self._count)
            self._numbered[id(optimizer)] = known
            if len(self._numbered) > self._most:
                self._forget_dead()
        return known.number

    def _forget_dead(self) -> None:
        """Forget optimizers that live no more, and what is known of them."""
        alive = {k: v for k, v in self._numbered.items() if v.reference() is not None}
        numbers = {known.number for known in alive.values()}
        self._numbered = alive
        self._roots = {n: roots for n, roots in self._roots.items() if n in numbers}
        self._parts = {k: v for k, v in self._parts.items() if v.reference() is not None}
        for members in self._groups.values():
            members.intersection_update(numbers)
        self._most = max(_FEW, 2 * len(alive))

    def group_of(self, numbers: set[int]) -> int:
        """The number of those that step in one backward pass: one group, though some may vary."""
        for group, members in self._groups.items():
            if members & numbers:
                members.update(numbers)
                return group
        self._count += 1
        self._groups[self._count] = set(numbers)
        return self._count

    def members_of(self, numbers: Iterable[int]) -> list[Any]:
        """The living optimizers behind numbers, those of groups one by one, each once."""
        wanted = dict.fromkeys(self._single(numbers))
        alive = {
            known.number: optimizer
            for known in list(self._numbered.values())
            if (optimizer := known.reference()) is not None
        }
        return [alive[number] for number in wanted if number in alive]

    def expected(self, since: Iterable[int]) -> set[int]:
        """The optimizers that exist and belong to models which were called in this step.

        So do those of tensors that are no parameters of a module, such as a temperature. One whose
        parameters have been stepped by those that did step is not among them: it was replaced, or
        wraps another one.
        """
        made = self._recording.made.alive()
        if len(made) < 2:
            return set()
        stepped: set[int] = set()
        numbers = set(self._single(since))
        for optimizer in self.members_of(numbers):
            stepped.update(map(id, _trainable(optimizer)))
        called = [root for root, _ in self._alive()]
        near = frozenset[int]().union(*map(self._ids_of, called))
        found = set()
        for optimizer in made:
            if self.number_of(optimizer) not in numbers:
                trainable = _trainable(optimizer)
                own = set(map(id, trainable))
                if own - stepped and (own & near or not near or _are_bare(trainable)):
                    found.add(self._as_seen(self.number_of(optimizer)))
        return found

    def is_alone(self) -> bool:
        """Whether there is one optimizer only."""
        return len(self._recording.made.alive()) == 1

    def is_trained(self, root: Module) -> bool:
        """Whether an optimizer there is steps parameters of a root."""
        ids = self._ids_of(root)
        return any(
            id(parameter) in ids
            for optimizer in self._recording.made.alive()
            for parameter in _ends_of(_trainable(optimizer))
        )

    def roots_of(self, optimizer: Optimizer) -> list[tuple[Any, Ids]]:
        """The roots whose parameters an optimizer steps, of those that were called with it."""
        number = self.number_of(optimizer)
        known = self._roots.get(number)
        if known is not None:
            alive = [(root, ids) for reference, ids in known if (root := reference()) is not None]
            if alive:
                return alive
        ends = [id(parameter) for parameter in _ends_of(_trainable(optimizer))]
        found = [
            (root, ids)
            for root, ids in self._alive()
            if any(end in self._ids_of(root) for end in ends)
        ]
        if found:
            self._roots[number] = [(weakref.ref(root), ids) for root, ids in found]
        return found

    def name_of(self, optimizer: Optimizer) -> str:
        """What an optimizer is called."""
        return self._recording.optimizer_names.name_of(optimizer)

    def told(self, pattern: StepPattern, since: int) -> str:
        """What ends a step, in words."""
        if not pattern.period:
            return "which optimizers make a step is not settled: each waits for those of its model"
        runs: list[tuple[str, int]] = []
        for number in pattern.cycle:
            name = self._told_of(number)
            count = runs.pop()[1] if runs and runs[-1][0] == name else 0
            runs.append((name, count + 1))
        words = ", then ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)
        return f"a step ends after {words}, as seen since step {since}"

    def _told_of(self, number: int) -> str:
        """An optimizer, or those that step in one pass, in words."""
        names = list(map(self.name_of, self.members_of([number])))
        if number in self._groups:
            return f"{len(names)} optimizers in one backward pass"
        return names[0] if names else "an optimizer that is gone"

    def _alive(self) -> list[tuple[Any, Ids]]:
        """The roots called in this step, with their numbers."""
        called = list(self._called.values())
        return [(root, ids) for reference, ids in called if (root := reference()) is not None]

    def place(self) -> Place:
        """Where in the script the optimizer in hand is stepped."""
        is_fresh, self.is_fresh = self.is_fresh, False
        return Place(_line_of(sys._getframe(1)), is_fresh)

    def _single(self, numbers: Iterable[int]) -> list[int]:
        """Numbers of single optimizers in the place of those of groups."""
        return [one for n in numbers for one in sorted(self._groups.get(n, (n,)))]

    def _as_seen(self, number: int) -> int:
        """The group that an optimizer is of, else its own number."""
        groups = (group for group, members in self._groups.items() if number in members)
        return next(groups, number)

    def _ids_of(self, root: Module) -> frozenset[int]:
        """The identities of a root's parameters."""
        known = self._parts.get(id(root))
        if known is None or known.reference() is not root:
            ids = frozenset(
                id(parameter)
                for _, module in walk(root, "", set())
                for parameter in list(module._parameters.values())
                if parameter is not None
            )
            known = self._parts[id(root)] = _Parts(weakref.ref(root), ids)
        return known.ids


def _trainable(optimizer: Optimizer) -> list[Any]:
    """The parameters of an optimizer that get gradients."""
    groups = list(getattr(optimizer, "param_groups", ()))
    return [p for group in groups for p in list(group["params"]) if p.requires_grad]


def _are_bare(tensors: list[Tensor]) -> bool:
    """Whether tensors can be parameters of no module."""
    parameter = sys.modules["torch"].nn.Parameter
    return not any(issubclass(type(tensor), parameter) for tensor in tensors)


def _ends_of(parameters: list[Tensor]) -> list[Any]:
    """The first and the last."""
    return [parameters[0], parameters[-1]] if parameters else []


def _line_of(frame: FrameType | None) -> tuple[tuple[int, int], ...]:
    """The calls of the script that lead to a frame, the outermost first."""
    found: list[tuple[int, int]] = []
    while frame is not None and len(found) < _DEEPEST:
        module = f"{frame.f_globals.get('__name__', '')}."
        if found or not module.startswith(_NOT_THE_SCRIPT):
            found.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(reversed(found))
