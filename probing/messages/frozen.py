"""Frozen records that are declared at next to no cost: those that a process loads at its start.

Rules of this file: standard library only. `dataclasses` writes the text of five methods for each
class and compiles it, which takes a millisecond and more; here all classes share five functions.
To `dataclasses.fields`, `replace` and `asdict`, and to a type checker, they are dataclasses like
any other. A class that is not loaded at the start of every training has no need of this.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        """A word to the type checker, which need not be there at run time."""
        return lambda decorator: decorator


T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, dataclasses.Field))
def frozen(cls: type[T]) -> type[T]:
    """Make a class with annotated members a frozen dataclass."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    made.__init__, made.__repr__ = _init, _repr
    made.__eq__, made.__hash__ = _is_equal, _hash
    made.__setattr__ = made.__delattr__ = _refuse
    return cls


def _init(self: Any, *values: Any, **named: Any) -> None:
    """Set each member: by its place, by its name, or to its default."""
    fields = dataclasses.fields(self)
    if len(values) > len(fields):
        raise TypeError(f"{type(self).__name__} has {len(fields)} members, not {len(values)}")
    members = {field.name: value for field, value in zip(fields, values, strict=False)}
    for field in fields[len(values) :]:
        if field.name in named:
            members[field.name] = named.pop(field.name)
        elif field.default is not dataclasses.MISSING:
            members[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            members[field.name] = field.default_factory()
        else:
            raise TypeError(f"{type(self).__name__} lacks {field.name!r}")
    if named:
        raise TypeError(f"{type(self).__name__} cannot take {', '.join(named)}")
    self.__dict__.update(members)


def _repr(self: Any) -> str:
    """The class and its members, but those that are not to be shown."""
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__name__}({', '.join(shown)})"


def _is_equal(self: Any, other: object) -> Any:
    """Whether the other is of the same class and has the same members."""
    return vars(self) == vars(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    """Equal records have equal hashes."""
    return hash(tuple(vars(self).values()))


def _refuse(self: Any, name: str, *_: object) -> None:
    """A member is to be set, or taken away."""
    raise dataclasses.FrozenInstanceError(f"cannot change {type(self).__name__}.{name}")
