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

from ...calls.names.module_names import walk
from ...shared.recording import Recording
from ...torch_types import Module, Optimizer, Tensor
from .step_pattern import Place, StepPattern

Ids = tuple[int, int, int]

_NOT_THE_SCRIPT = ("torch.", "probing.", "contextlib.", "functools.")
_DEEPEST = 60
_FEW = 64


class _Parts(NamedTuple):
    """The parameters of a root module, by identity."""

    reference: weakref.ref[Any]
    ids: frozenset[int]


class _Root(NamedTuple):
    """A root module that was called with an optimizer.

    Attributes:
        own: The parameters of the optimizer that it was held against.
        is_of: Whether the optimizer steps parameters of it.
    """

    reference: weakref.ref[Any]
    ids: Ids
    own: frozenset[int]
    is_of: bool


class Member:
    """An optimizer, and what is known of it.

    Attributes:
        number: Its own; no other one has had it.
        alone: That number, and no other.
    """

    __slots__ = ("alone", "count", "name", "number", "own", "reference", "roots")

    def __init__(self, optimizer: Optimizer, number: int) -> None:
        self.reference: weakref.ref[Any] = weakref.ref(optimizer)
        self.number, self.alone = number, frozenset((number,))
        self.name = 0  # the number of what it is called
        self.count, self.own = -1, frozenset[int]()  # its parameters
        self.roots: dict[int, _Root] = {}


class Members:
    """Numbers the optimizers, and tells which of them are waited for.

    Attributes:
        called: By identity, the roots that were called in the step in progress, with the numbers of
            their names.
        is_fresh: Whether a model was called, or a backward pass made, since the last step of an
            optimizer.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._numbered: dict[int, Member] = {}
        self._count = 0
        self._most = _FEW
        self._groups: dict[int, set[int]] = {}
        self._parts: dict[int, _Parts] = {}
        self.called: dict[int, tuple[weakref.ref[Any], Ids]] = {}
        self._training = 0
        self._called_by: dict[int, dict[int, tuple[weakref.ref[Any], Ids]]] = {}
        self.is_fresh = False

    def root_called(self, root: Module, ids: Ids) -> None:
        """A root module is called in the step in progress."""
        self.is_fresh = True
        if not self._is_called(root):
            self.called.pop(id(root), None)
            self.called[id(root)] = (weakref.ref(root), ids)

    def _is_called(self, root: Module) -> bool:
        """Whether it was called in the step in progress, and not another that was where it is."""
        known = self.called.get(id(root))
        return known is not None and known[0]() is root

    def switch(self, training: int) -> None:
        """Another training goes on: what was called for its step are other models."""
        self._called_by[self._training], self._training = self.called, training
        self.called = self._called_by.pop(training, {})

    def step_ended(self) -> None:
        """A step of the training has ended."""
        self.called.clear()

    def number_of(self, optimizer: Optimizer) -> int:
        """The number of an optimizer, as long as it lives."""
        return self.known(optimizer).number

    def known(self, optimizer: Optimizer) -> Member:
        """What is known of an optimizer."""
        known = self._numbered.get(id(optimizer))
        if known is None or known.reference() is not optimizer:
            self._count += 1
            known = self._numbered[id(optimizer)] = Member(optimizer, self._count)
            self._own_of(optimizer, known)
            if len(self._numbered) > self._most:
                self._forget_dead()
        return known

    def _forget_dead(self) -> None:
        """Forget optimizers that live no more, and what is known of them."""
        alive = {k: v for k, v in self._numbered.items() if v.reference() is not None}
        numbers = {known.number for known in alive.values()}
        self._numbered = alive
        self._parts = {k: v for k, v in self._parts.items() if v.reference() is not None}
        for members in self._groups.values():
            members.intersection_update(numbers)
        self._most = max(_FEW, 2 * len(alive))

    def group_of(self, numbers: frozenset[int]) -> int:
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
        others = self._others(since)
        if not others:
            return set()
        called = [root for root, _ in self._alive()]
        near = frozenset[int]().union(*map(self._ids_of, called))
        found = set()
        for optimizer, trainable in others:
            if not near or not near.isdisjoint(map(id, trainable)) or _are_bare(trainable):
                found.add(self._as_seen(self.number_of(optimizer)))
        return found

    def has_others(self, since: Iterable[int]) -> bool:
        """Whether optimizers exist beside those that have stepped, of other parameters."""
        return bool(self._others(since))

    def is_of_others(self, root: Module, since: Iterable[int]) -> bool:
        """Whether a root was not called in this step, and only such others step parameters of it.

        The next round of a loop begins with a model that was called in the one before.
        """
        if self._is_called(root):
            return False
        stepped = [self._own_of(optimizer) for optimizer in self.members_of(self._single(since))]
        others, ids = self._others(since), self._ids_of(root)
        return all(map(ids.isdisjoint, stepped)) and any(
            not ids.isdisjoint(map(id, own)) for _, own in others
        )

    def _others(self, since: Iterable[int]) -> list[tuple[Any, list[Any]]]:
        """The optimizers beside those that have stepped, with their parameters.

        One whose parameters have all been stepped is not among them.
        """
        objects = self._recording.objects
        made = objects.counted_optimizers(objects.made)
        if len(made) < 2:
            return []
        stepped: set[int] = set()
        numbers = set(self._single(since))
        for optimizer in self.members_of(numbers):
            stepped.update(map(id, _trainable(optimizer)))
        others = [o for o in made if self.number_of(o) not in numbers]
        pairs = [(optimizer, _trainable(optimizer)) for optimizer in others]
        return [(other, own) for other, own in pairs if not stepped.issuperset(map(id, own))]

    def is_alone(self) -> bool:
        """Whether there is one optimizer only."""
        objects = self._recording.objects
        return len(objects.counted_optimizers(objects.made)) == 1

    def is_trained(self, root: Module) -> bool:
        """Whether an optimizer there is steps parameters of a root."""
        made = [self._own_of(optimizer) for optimizer in self._recording.objects.made.alive()]
        ids = self._ids_of(root)
        return any(not ids.isdisjoint(own) for own in made)

    def is_of_called(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer steps parameters of a root that was called in this step.

        Where none was called, as in a training by functions, it may.
        """
        called = [root for root, _ in self._alive()]
        own = self._own_of(optimizer)
        return not called or any(not own.isdisjoint(self._ids_of(root)) for root in called)

    def roots_of(self, optimizer: Optimizer, member: Member) -> list[tuple[Any, Ids]]:
        """The roots whose parameters an optimizer steps: those called in this step, else all.

        Args:
            member: What is known of it.
        """
        own, known, found = self._own_of(optimizer, member), member.roots, []
        for key, (reference, ids) in list(self.called.items()):
            root = reference()
            if root is None:
                continue
            seen = known.get(key)
            if seen is None or seen.reference is not reference or seen.own is not own:
                is_of = not own.isdisjoint(self._ids_of(root))
                _forget_gone(known)
                seen = known[key] = _Root(reference, ids, own, is_of)
            if seen.is_of:
                found.append((root, ids))
        if found:
            return found
        before = [seen for seen in known.values() if seen.is_of]
        return [(root, seen.ids) for seen in before if (root := seen.reference()) is not None]

    def _own_of(self, optimizer: Optimizer, member: Member | None = None) -> frozenset[int]:
        """The identities of an optimizer's parameters, frozen or not, while they are as many."""
        member = member or self.known(optimizer)
        groups = list(getattr(optimizer, "param_groups", ()))
        count = 0
        for group in groups:
            count += len(group["params"])
        if member.count != count:
            own = frozenset(id(parameter) for group in groups for parameter in group["params"])
            member.count, member.own = count, own
            if not any(own <= parts.ids for parts in list(self._parts.values())):
                self._parts.clear()  # a model may have got parts since it was met
        return member.own

    def name_number_of(self, optimizer: Optimizer, member: Member) -> int:
        """The number of what an optimizer is called; 0 (NULL) where it could not be written."""
        if not member.name:
            member.name = self._recording.names.intern(self.name_of(optimizer))
        return member.name

    def name_of(self, optimizer: Optimizer) -> str:
        """What an optimizer is called."""
        return self._recording.objects.optimizer_names.name_of(optimizer)

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
        called = list(self.called.values())
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
        known = self._parts.get(id(root))
        if known is None or known.reference() is not root:
            ids = frozenset(
                id(parameter)
                for _, module in walk(root, "", set())
                for parameter in list(module._parameters.values())
                if parameter is not None
            )
            _forget_gone(self._parts)
            known = self._parts[id(root)] = _Parts(weakref.ref(root), ids)
        return known.ids


def _forget_gone(known: dict[int, _Root] | dict[int, _Parts]) -> None:
    """Forget roots that live no more, where there are many: some scripts make one in each step."""
    if len(known) >= _FEW:
        for key in [key for key, seen in known.items() if seen.reference() is None]:
            known.pop(key, None)


def _trainable(optimizer: Optimizer) -> list[Any]:
    groups = list(getattr(optimizer, "param_groups", ()))
    return [p for group in groups for p in list(group["params"]) if p.requires_grad]


def _are_bare(tensors: list[Tensor]) -> bool:
    parameter = sys.modules["torch"].nn.Parameter
    return not any(issubclass(type(tensor), parameter) for tensor in tensors)


def _line_of(frame: FrameType | None) -> tuple[tuple[int, int], ...]:
    """The calls of the script that lead to a frame, the outermost first."""
    found: list[tuple[int, int]] = []
    while frame is not None and len(found) < _DEEPEST:
        module = f"{frame.f_globals.get('__name__', '')}."
        if found or not module.startswith(_NOT_THE_SCRIPT):
            found.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(reversed(found))
