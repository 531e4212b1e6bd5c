"""The models and their modules, for ``python.models`` and ``python.modules``.

Rules of this file: runs in the agent's thread while others train; reads what stands beside a
tensor's data (shape, type, device), of data only running statistics, and never a gradient. Nothing
read stays referenced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ....messages.common import LiveRows
from ....tables import MODELS, MODULES
from ..calls.names.class_names import class_name, is_wrapper_child, unwrap
from ..calls.names.module_names import outermost, walk
from ..calls.observation import Observed, is_compiled
from ..shared.found import found_roots
from ..shared.recording import Recording
from ..torch_types import Module
from .flops import Formulas
from .tensor_facts import Sizes, bad_statistics, sizes_of

Row = tuple[str | int | float | bool | None, ...]


class _Part(NamedTuple):
    """A module with what it and all below it hold.

    Attributes:
        module: The module.
        name: Its qualified name in the root.
        depth: How many names deep it stands.
        is_compiled: Whether it, or a module around it, is compiled.
        parameters: Its tensors and those of all modules below it.
        buffers: The same of its buffers.
    """

    module: Any
    name: str
    depth: int
    is_compiled: bool
    parameters: dict[int, Any]
    buffers: dict[int, Any]


def model_rows(recording: Recording | None) -> LiveRows:
    """The rows of ``python.models`` now."""
    roots = _roots(recording)
    rows = [
        _model_row(number, root, name)
        for number, (root, name) in enumerate(zip(roots, _named(recording, roots), strict=True))
    ]
    return LiveRows.of(MODELS, rows, _missing(recording, roots))


def module_rows(
    recording: Recording | None, *, is_observed: bool, note: str | None = None
) -> LiveRows:
    """The rows of ``python.modules`` now.

    Args:
        is_observed: Whether what the model's calls have shown is asked for.
        note: What the reader should know about that.
    """
    seen = recording.looks.seen if recording is not None and is_observed else {}
    roots = _roots(recording)
    rows = [
        row
        for number, (root, name) in enumerate(zip(roots, _named(recording, roots), strict=True))
        for row in _module_rows(number, root, name, seen)
    ]
    told = _missing(recording, roots) or note or (_not_looked_into(rows) if is_observed else None)
    return LiveRows.of(MODULES, rows, told)


def _roots(recording: Recording | None) -> list[Any]:
    """The root modules that are alive, without those inside another one."""
    if recording is None:
        return []
    return outermost(recording.objects.roots.alive()) or found_roots()


def _named(recording: Recording | None, roots: list[Module]) -> list[str]:
    """What the roots are called."""
    return [] if recording is None else [recording.objects.models.name_of(root) for root in roots]


def _missing(recording: Recording | None, roots: list[Module]) -> str | None:
    """What to say when no model has been called."""
    if recording is not None and recording.objects.roots.alive():
        return None
    instead = "; shown are those that the process holds" if roots else ""
    return f"no module has been called since the agent came into the process{instead}"


def compiled_note(recording: Recording) -> str | None:
    """What to say where the models that were called have compiled parts; None where none has."""
    roots = recording.objects.roots.alive()
    count = sum(len(_compiled_modules(root)) for root in roots)
    return _unseen(count, sum(1 for root in roots for _ in walk(root, "", set())))


def _not_looked_into(rows: list[Row]) -> str | None:
    """What to say where there is compiled code."""
    place = [column.name for column in MODULES.columns].index("compiled")
    return _unseen(sum(bool(row[place]) for row in rows), len(rows))


def _unseen(compiled: int, modules: int) -> str | None:
    """The sentence about compiled modules."""
    if not compiled:
        return None
    return (
        f"{compiled} of {modules} modules go through torch.compile: what they do inside is unseen"
    )


def _model_row(number: int, root: Module, name: str) -> Row:
    """The row of one root, in the order of the table's columns."""
    inner, parts = unwrap(root), list(_parts(root))
    held, buffers = _sizes(parts[0])
    share = held.trainable / held.numbers if held.numbers and held.trainable is not None else None
    return (
        number,
        name,
        class_name(inner),
        " > ".join(_wrappers(root)) or None,
        len(parts) - len(_wrappers(root)),
        held.numbers,
        held.trainable,
        share,
        held.bytes,
        buffers.numbers,
        buffers.bytes,
        held.dtype or buffers.dtype,
        held.device or buffers.device,
        inner.training,
        any(part.is_compiled for part in parts),
    )


def _module_rows(number: int, root: Module, name: str, seen: dict[int, Observed]) -> list[Row]:
    root_class = class_name(unwrap(root))
    parts = list(_parts(root))
    shown = _with_containers(parts, seen)
    of_root = (root_class, name, number)
    return [_module_row(part, of_root, shown.get(id(part.module))) for part in parts]


def _module_row(part: _Part, of_root: tuple[str, str, int], seen: Observed | None) -> Row:
    """The row of one module, in the order of the table's columns."""
    held, buffers = _sizes(part)
    own = sizes_of(_own(part.module._parameters).values())
    return (
        part.name,
        class_name(part.module),
        *of_root,
        part.depth,
        held.numbers,
        own.numbers,
        held.trainable,
        held.bytes,
        buffers.numbers,
        buffers.bytes,
        held.dtype or buffers.dtype,
        held.device or buffers.device,
        part.module.training,
        _dropout_of(part.module),
        bad_statistics(part.module),
        part.is_compiled,
        *_observed_cells(seen),
    )


def _dropout_of(module: Module) -> float | None:
    """What a dropout leaves out, from 0 to 1; None of any other module."""
    base = sys.modules["torch"].nn.modules.dropout._DropoutNd
    share = module.__dict__.get("p") if isinstance(module, base) else None
    return float(share) if isinstance(share, (int, float)) else None


def _observed_cells(seen: Observed | None) -> Row:
    """The columns that an observed forward fills."""
    if seen is None:
        return (None,) * 11
    given, returned = seen.given, seen.returned
    return (
        seen.calls,
        given.text if given else None,
        given.dtypes if given else None,
        given.bytes if given else None,
        given.layouts if given else None,
        returned.text if returned else None,
        returned.dtypes if returned else None,
        returned.bytes if returned else None,
        seen.flops,
        seen.is_lower_bound if seen.flops is not None else None,
        seen.step,
    )


def _with_containers(parts: list[_Part], seen: dict[int, Observed]) -> dict[int, Observed]:
    """What was observed, and for containers, which are never called, the sum of what is inside."""
    formulas, found = Formulas(), {}
    for part in parts:
        shown = seen.get(id(part.module))
        if shown is not None and shown.reference() is part.module:
            found[id(part.module)] = shown
    for part in reversed(parts):  # so that what is inside comes before what it is inside of
        module = part.module
        if id(module) not in found and formulas.is_container(module):
            inside = [child for child in module._modules.values() if child is not None]
            known = [found[id(child)] for child in inside if id(child) in found]
            counted = [one.flops for one in known if one.flops is not None]
            if counted:
                total = Observed(module, known[0].step)
                total.flops = sum(counted)
                total.is_lower_bound = len(counted) < len(inside) or any(
                    one.is_lower_bound for one in known
                )
                found[id(module)] = total
    return found


def _parts(root: Module) -> Iterator[_Part]:
    """Every module of a root with all it holds, in the order of `walk`."""
    parameters: dict[int, dict[int, Any]] = {}
    buffers: dict[int, dict[int, Any]] = {}
    compiled = _compiled_modules(root)
    for name, module in walk(root, "", set()):
        shown = name or class_name(module)
        depth = name.count(".") + 1 if name else 0
        held = (_held(module, "_parameters", parameters), _held(module, "_buffers", buffers))
        yield _Part(module, shown, depth, id(module) in compiled, *held)


def _held(module: Module, kind: str, known: dict[int, dict[int, object]]) -> dict[int, Any]:
    """The tensors of one kind that a module and all below it hold, by identity.

    Args:
        known: Those of the modules that were asked before.
    """
    if id(module) not in known:
        known[id(module)] = tensors = _own(getattr(module, kind))
        for child in list(module._modules.values()):
            if child is not None:
                tensors.update(_held(child, kind, known))
    return known[id(module)]


def _compiled_modules(root: Module) -> set[int]:
    """The identities of all modules that are compiled, by themselves or around them."""
    found: set[int] = set()
    for _, module in walk(root, "", set()):
        if is_compiled(module):
            found.update(id(inner) for _, inner in walk(module, "", set()))
    return found


def _wrappers(root: Any) -> list[str]:
    """The classes of the wrappers around a model, outermost first."""
    names, module = [], root
    while module is not unwrap(module):
        names.append(class_name(module))
        module = next(
            child for name, child in module._modules.items() if is_wrapper_child(module, name)
        )
    return names


def _own(tensors: dict[str, object]) -> dict[int, Any]:
    return {id(tensor): tensor for tensor in list(tensors.values()) if tensor is not None}


def _sizes(part: _Part) -> tuple[Sizes, Sizes]:
    """What a module and all below it hold in parameters and in buffers."""
    return sizes_of(part.parameters.values()), sizes_of(part.buffers.values())
