"""Dataclasses that are declared at next to no cost.

Rules of this file: standard library only, since every training loads it at its start. `dataclasses`
writes the text of several methods for each class and compiles it, which takes half a millisecond
and more; a command declares a hundred records and makes ten. Here all classes share six functions.
To `dataclasses.fields`, `replace` and `asdict`, and to a type checker, they are dataclasses like
any other. One that thousands are made of in a loop may be of `dataclasses` itself: to make one
takes three times as long here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

_Plan = dict[str, "dataclasses.Field[Any]"]
_plans: dict[type, _Plan] = {}
"""The members of each class of which one was made."""
_put = object.__setattr__

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True
    ) -> Callable[[type[T]], type[T]]:
        """As `dataclasses.dataclass`; a class has a docstring, and members that are initialized."""

        def decorate(cls: type[T]) -> type[T]:
            declare = dataclasses.dataclass(
                init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
            )
            made = declare(cls)
            made.__init__ = _init_by_name if kw_only else _init
            made.__repr__ = _repr
            if eq:
                made.__eq__, made.__hash__ = _is_equal, _hash if frozen else None
            if frozen:
                made.__setattr__ = made.__delattr__ = _refuse
                made.__getstate__, made.__setstate__ = _values, _restore
            return made

        return decorate


class InNotebooks:
    """What a notebook shows with tables and pictures, and IPython in a terminal as a command does.

    How is known to `probing.cli.notebook` alone, far above: it is found by its name.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        from importlib import import_module

        html: str = import_module("probing.cli.notebook.shown").html_of(self)
        return html

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._repr_pretty_ = _pretty  # type: ignore[attr-defined]  # IPython looks beside `__repr__`


def _pretty(self: Any, printer: Any, _is_cycle: bool) -> None:  # noqa: FBT001 - IPython's
    """What IPython shows in a terminal."""
    from importlib import import_module

    printer.text(import_module("probing.cli.notebook.texts").text_of(self))


def _plan_of(cls: type) -> _Plan:
    plan = {field.name: field for field in dataclasses.fields(cls)}
    return _plans.setdefault(cls, plan)


def _init_by_name(self: Any, /, **named: Any) -> None:
    """Set each member: by its name, or to its default."""
    cls = type(self)
    for name, field in (_plans.get(cls) or _plan_of(cls)).items():
        if name in named:
            _put(self, name, named.pop(name))
        elif field.default is not dataclasses.MISSING:
            _put(self, name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            _put(self, name, field.default_factory())
        else:
            raise TypeError(f"{cls.__name__} lacks {name!r}")
    if named:
        raise TypeError(f"{cls.__name__} cannot take {', '.join(named)}")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _init(self: Any, /, *values: Any, **named: Any) -> None:
    """Set each member: by its place, by its name, or to its default."""
    names = list(_plan_of(type(self)))
    if len(values) > len(names):
        raise TypeError(f"{type(self).__name__} has {len(names)} members, not {len(values)}")
    twice = named.keys() & set(names[: len(values)])
    if twice:
        raise TypeError(f"{type(self).__name__} got {', '.join(twice)} twice")
    _init_by_name(self, **dict(zip(names, values, strict=False)), **named)


def _values(self: Any) -> tuple[Any, ...]:
    cls = type(self)
    return tuple([getattr(self, name) for name in _plans.get(cls) or _plan_of(cls)])


def _repr(self: Any) -> str:
    """The class and its members, but those that are not to be shown."""
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_equal(self: Any, other: object) -> Any:
    """Whether the other is of the same class and has the same members."""
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    """Equal records have equal hashes."""
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: object) -> None:
    """A member is to be set, or taken away."""
    raise dataclasses.FrozenInstanceError(f"cannot change {type(self).__name__}.{name}")


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    """The record of which that was kept."""
    for name, value in zip(_plan_of(type(self)), state, strict=True):
        _put(self, name, value)
