"""The parameters of the models and what trains them, for ``python.parameters``.

Rules of this file: runs in the agent's thread while others train; reads what stands beside a
tensor's data, never the data. Gradients are read by the training itself, as a step ends, or beside
one that stands still. Nothing read stays referenced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...messages.common import LiveRows
from ...tables import PARAMETERS
from .calls.names.class_names import class_name, unwrap
from .calls.names.module_names import outermost, walk
from .model.idle_wrappers import idle_wrappers
from .model.tensor_facts import layout_of, name_of, sizes_of
from .shared.found import found_optimizers, found_roots
from .shared.gradients import Gradient, GradientLook, SlowSteps, known_of
from .shared.versions import version_told
from .torch_types import Module, Optimizer

if TYPE_CHECKING:
    from ..live.question import LiveQuestion
    from .shared.recording import Recording

_WAIT_S, _LONGEST_WAIT_S = 2.0, 8.0
"""How long the end of a step is waited for at least and at most; else as long as steps take."""
_STEPS = 1.5
"""How many steps' time that is: who asks in the middle of one waits for a part of it."""
_HOLD_S = 10.0
"""How long a training that goes on meanwhile waits at most."""
_PATIENCE_S = 0.2
_GRADIENT = [column.name for column in PARAMETERS.columns].index("has_gradient")
_LATE = (
    f"no step has ended within {_LONGEST_WAIT_S:g} s: which parameters have a gradient is known as"
    " one does, for who asks again before the next has ended"
)

Row = tuple[str | int | float | bool | None, ...]


def rows(question: LiveQuestion) -> LiveRows:
    """The rows of ``python.parameters`` now."""
    recording = question.training.watched()
    if recording is None:
        return LiveRows.of(PARAMETERS, ())
    found = _rows(recording, question)
    is_late = recording.looks.slow_steps is not None and None in {row[_GRADIENT] for row in found}
    return LiveRows.of(PARAMETERS, found, _LATE if is_late else None)


def _gradients(
    recording: Recording, question: LiveQuestion, leaves: list[Any]
) -> dict[int, Gradient]:
    """The gradients of leaves as a step ends, or while the training stands still, by identity."""
    slow = recording.looks.slow_steps
    if slow is not None and (last := slow.last()) is not None:
        return last
    wait_s = _wait_s(recording)
    look = GradientLook(recording, leaves)
    recording.safe_points.begin_job(look)
    try:
        why = question.wait(look.is_over, within_s=min(max(_WAIT_S, wait_s), _LONGEST_WAIT_S))
    finally:
        recording.safe_points.end_job(look)
    found = look.found
    if found is None and why == "late" and question.finds_still():
        with question.beside(_HOLD_S) as is_still:
            if is_still:
                found = known_of(leaves, recording, patience_s=_PATIENCE_S, is_still=True)
    if found is None and why == "late" and recording.looks.slow_steps is None:
        _await_slow(recording)
    return found or {}


def _wait_s(recording: Recording) -> float:
    """How long the end of a step would be waited for."""
    return _STEPS * 1e-9 * recording.rows.took_ns


def _await_slow(recording: Recording) -> None:
    """Have the end of the step in progress, which takes long, looked at for who asks next."""
    slow = SlowSteps(
        recording,
        lambda: _leaves(*_met(recording)),
        lambda: _wait_s(recording) > _LONGEST_WAIT_S,
    )
    recording.looks.slow_steps = slow
    recording.safe_points.begin_job(slow)


def _rows(recording: Recording, question: LiveQuestion) -> list[Row]:
    """One row per parameter of the models, then one per parameter that only an optimizer has."""
    roots, named, owners = _met(recording)
    seen: set[int] = set()
    found: list[Row] = []
    gradients = _gradients(recording, question, _leaves(roots, named, owners))
    idle = idle_wrappers(roots, recording.objects.unwrapped())
    for root, name, parameter in named:
        if id(parameter) not in seen:
            seen.add(id(parameter))
            of_root = recording.objects.models.name_of(root), class_name(unwrap(root))
            those = owners.get(id(parameter), [])
            row = _row(of_root, name, parameter, those, gradients)
            found.append((*row, idle.get(id(parameter))))
    for key, those in owners.items():
        if key not in seen:
            optimizer, place, parameter = those[0]
            name = f"{optimizer.name}[{place}]"
            found.append((*_row((None, None), name, parameter, those, gradients), None))
    return found


def _met(
    recording: Recording,
) -> tuple[list[Any], list[tuple[Any, str, Any]], dict[int, list[Owned]]]:
    """The roots, their parameters by name, and the optimizers that have some, by identity."""
    roots = outermost(recording.objects.roots.alive()) or found_roots()
    named = [(root, *one) for root in roots for one in _named(root, "", set())]
    named += [(root, *one) for root in roots for one in _kept_aside(root)]
    # Without those of other threads, as in Hogwild: each of them has the same parameters.
    owners = _owners(recording, recording.objects.counted_optimizers())
    if any(parameter.requires_grad and id(parameter) not in owners for *_, parameter in named):
        # Of an optimizer that has not stepped lately, what no other has.
        owners = _owners(recording, found_optimizers()) | owners
    return roots, named, owners


def _leaves(
    _roots: list[Any], named: list[tuple[Any, str, Any]], owners: dict[int, list[Owned]]
) -> list[Any]:
    """The parameters that may hold a gradient."""
    held = [*(one for *_, one in named), *(those[0][2] for those in owners.values())]
    return [one for one in held if one.is_leaf]


class _Owner:
    """An optimizer under its name.

    Attributes:
        state: Its own dictionary.
        key: Which it is.
        holds: Which other optimizers it holds, as one that is around another does.
    """

    __slots__ = ("holds", "key", "name", "state")

    def __init__(self, name: str, optimizer: Any) -> None:
        self.name = name
        self.state = optimizer.state
        self.key = id(optimizer)
        self.holds = _held(optimizer)


Owned = tuple[_Owner, str, Any]


def _held(optimizer: Optimizer) -> frozenset[int]:
    """The optimizers that one holds in its attributes, or in a list or dictionary there."""
    cls = sys.modules["torch"].optim.Optimizer
    found = []
    for value in list(vars(optimizer).values()):
        inner = list(value.values()) if isinstance(value, dict) else value
        found += list(inner) if isinstance(inner, (list, tuple)) else [inner]
    return frozenset(id(one) for one in found if issubclass(type(one), cls))


def _distinct(owners: list[Owned]) -> list[Owned]:
    """Without those that are around another of them, which alone changes the parameter."""
    keys = {owner.key for owner, *_ in owners}
    inner = [owned for owned in owners if not (owned[0].holds - {owned[0].key}) & keys]
    return inner or owners[:1]


def _owners(recording: Recording, optimizers: list[Optimizer]) -> dict[int, list[Owned]]:
    """The optimizers that have each parameter, with its place there."""
    found: dict[int, list[Owned]] = {}
    for optimizer in optimizers:
        owner = _Owner(recording.objects.optimizer_names.name_of(optimizer), optimizer)
        for number, group in enumerate(list(optimizer.param_groups)):
            for place, parameter in enumerate(list(group["params"])):
                owned = owner, f"{number}.{place}", parameter
                found.setdefault(id(parameter), []).append(owned)
    return found


def _named(root: Module, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The parameters of a module and of those below it, but for those of modules seen before."""
    for prefix, module in walk(root, path, seen):
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                yield f"{prefix}.{name}" if prefix else name, parameter


def _kept_aside(root: Module) -> Iterator[tuple[str, Any]]:
    """The parameters of modules that one of a root keeps in a plain list, tuple or dictionary.

    They are called with it, and neither `parameters()` nor a checkpoint knows of them.
    """
    inside = list(walk(root, "", set()))
    seen = {id(module) for _, module in inside}
    for prefix, module in inside:
        for path, one in _in_containers(module):
            yield from _named(one, f"{prefix}.{path}" if prefix else path, seen)


def _in_containers(module: Module) -> Iterator[tuple[str, Module]]:
    """The modules in plain lists, tuples and dictionaries of a module, which begin with one."""
    for name, value in list(vars(module).items()):
        if name == "_modules" or type(value) not in {list, tuple, dict} or not _has_modules(value):
            continue
        for key, one in list(value.items() if type(value) is dict else enumerate(value)):
            if not _is_module(one):
                break
            yield f"{name}[{key}]", one


def _has_modules(values: Any) -> bool:
    """Whether it begins with a module; of what is large nothing more is looked at, or copied."""
    for one in values.values() if type(values) is dict else values:
        return _is_module(one)
    return False


def _is_module(value: object) -> bool:
    return issubclass(type(value), sys.modules["torch"].nn.Module)


def _row(
    of_root: tuple[str | None, str | None],
    name: str,
    parameter: Any,
    owners: list[Owned],
    gradients: dict[int, Gradient],
) -> Row:
    """The row of one parameter, in the order of the table's columns, but for the last one."""
    tensor_class = sys.modules["torch"].Tensor
    states = [owner.state.get(parameter) for owner, _, _ in owners]
    kept = [
        value
        for state in states
        if isinstance(state, dict)
        for value in list(state.values())
        if isinstance(value, tensor_class)
    ]
    held = sizes_of([parameter])
    counted = _distinct(owners) if owners else []
    gradient = gradients.get(id(parameter))
    return (
        *of_root,
        name,
        held.numbers,
        held.bytes,
        name_of(parameter.dtype),
        str(parameter.device),
        layout_of(parameter),
        bool(parameter.requires_grad),
        None if gradient is None else gradient.is_there,
        None if gradient is None else gradient.version,
        version_told(parameter),
        len(counted),
        ", ".join(owner.name for owner, _, _ in counted) or None,
        any(isinstance(state, dict) and bool(state) for state in states) if owners else None,
        sizes_of(kept).bytes,
    )
