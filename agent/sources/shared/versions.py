"""How often tensors were written to, and how parameters and gradients are known again.

Rules of this file: runs in any thread; looks at no value in a tensor, and keeps none. Nor is there
a weak reference to any that outlives the call: torch refuses to swap a tensor that has one, as
``Module.to`` does with the parameters and gradients of a sharded model.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from ....safety.guard import pass_on
from ..calls.names.class_names import places_in
from ..torch_types import Module


def version_of(tensor: Any) -> int:
    """How often a tensor was written to; 0 of one made in inference mode, which counts nothing."""
    return version_told(tensor) or 0


def version_told(tensor: Any) -> int | None:
    """The same; None of one that counts nothing."""
    try:
        return int(tensor._version)
    except (RuntimeError, TypeError):
        pass_on()
        return None


class Held(NamedTuple):
    """A parameter, by whoever holds it.

    Attributes:
        holder: A module, or an optimizer.
        place: Its name there, or its group and its place in that.
        identity: That of the parameter.
    """

    holder: weakref.ref[Any]
    place: str | tuple[int, int]
    identity: int

    def find(self) -> Any:
        """The parameter; None where it is there no more."""
        holder = self.holder()
        if holder is None:
            return None
        try:
            if isinstance(self.place, str):
                found = holder._parameters[self.place]
            else:
                found = holder.param_groups[self.place[0]]["params"][self.place[1]]
        except LookupError:
            return None
        return found if id(found) == self.identity else None


class HeldAlone(NamedTuple):
    """A tensor that is trained and that no module was found to hold, so that none moves it."""

    find: weakref.ref[Any]


def held_by_modules(root: Module) -> Iterator[tuple[Held, Any]]:
    """The parameters of a model, as `places_in` has them."""
    for module, name, parameter in places_in(root):
        yield Held(weakref.ref(module), name, id(parameter)), parameter


def held_at_ends(optimizer: Any) -> list[tuple[Held, Any]]:
    """The first and the last parameter of an optimizer; none of one that has no groups."""
    groups = list(getattr(optimizer, "param_groups", ()))
    if not groups:
        return []
    last = groups[-1]["params"]
    places = [((0, 0), one) for one in groups[0]["params"][:1]]
    places += [((len(groups) - 1, len(last) - 1), one) for one in last[-1:]]
    holder = weakref.ref(optimizer)
    return [(Held(holder, place, id(one)), one) for place, one in places]


class AsSeen(NamedTuple):
    """A gradient or parameter as it was once: told from a later one at its place by its storage.

    Attributes:
        storage: None of one that has none: that is never known again.
    """

    identity: int
    storage: weakref.ref[Any] | None
    version: int

    def is_of(self, gradient: Any) -> bool:
        """Whether it is that one, whatever was written to it since."""
        if id(gradient) != self.identity or self.storage is None:
            return False
        return self.storage() is _storage_of(gradient)

    def is_in(self, gradient: Any, *, changes: int) -> bool:
        """Whether it is that one, after so many changes."""
        return bool(gradient._version == self.version + changes) and self.is_of(gradient)


def as_seen(gradient: Any) -> AsSeen:
    """A gradient or parameter as it is now."""
    storage = _storage_of(gradient)
    seen = None if storage is None else weakref.ref(storage)
    return AsSeen(id(gradient), seen, gradient._version)


def _storage_of(gradient: Any) -> Any:
    """What lives as long as a gradient: its storage, or that of its values where it is sparse.

    None in a layout that has neither, as of compressed rows.
    """
    try:
        return (gradient._values() if gradient.is_sparse else gradient).untyped_storage()
    except NotImplementedError:
        pass_on()
        return None
