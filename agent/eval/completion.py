"""How a line of Python that is being typed can go on.

Rules of this file: runs in the agent's thread, beside a training that moves, so it looks at names
and at the dictionaries of objects and classes only: no property, no ``__getattr__``, no ``__dir__``
of theirs is run.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from ...messages.about.eval import Completions
from ..recording.stillness import Training
from .frame_names import Place
from .namespace import Names

_LAST_WORD = re.compile(r"((?:[^\W\d]\w*\.)*)([^\W\d]\w*)?$")
_MOST_WORDS = 500
_MRO = type.__dict__["__mro__"].__get__
_OWN = {GetSetDescriptorType, MemberDescriptorType}
"""What tells the ``__dict__`` of an object without running any Python."""
_PARTS = ("_modules", "_parameters", "_buffers")
"""Where a torch module keeps what it shows as its attributes."""


def complete(text: str, training: Training, last: Mapping[str, object]) -> Completions:
    """The words that the last one of a line can become."""
    match = _LAST_WORD.search(text)
    if match is None:
        return Completions(start=len(text), words=())
    path, begun = match[1].split(".")[:-1], match[2] or ""
    names = Names(Place(training.thread_id()), training.names(), last=last)
    try:
        words = _attributes(names, path) if path else _all_names(names, training)
    except (KeyError, AttributeError):
        words = []
    fitting = sorted({w for w in words if type(w) is str and w.startswith(begun)})
    if not begun.startswith("_"):
        fitting = [word for word in fitting if not word.startswith("_")]
    return Completions(start=len(text) - len(begun), words=tuple(fitting[:_MOST_WORDS]))


def _all_names(names: Names, training: Training) -> list[str]:
    """Every name that a line can begin with."""
    known = getattr(training.names(), "possible", ())
    return [*names.own_names(), *known, *dir(builtins), *keyword.kwlist]


def _attributes(names: Names, path: list[str]) -> Iterable[str]:
    """The attributes of what a path of names leads to."""
    thing = names.find(path[0])
    for name in path[1:]:
        thing = _attribute(thing, name)
    own = _own(thing)
    parts = [name for key in _PARTS for name in _parts(own, key)]
    classes = _MRO(thing) if issubclass(type(thing), type) else _MRO(type(thing))
    return [*own, *parts, *(name for cls in classes for name in cls.__dict__)]


def _attribute(thing: object, name: str) -> Any:
    """An attribute that can be had without running anything.

    Raises:
        AttributeError: There is none such.
    """
    own = _own(thing)
    for key in _PARTS:
        if name in (parts := _parts(own, key)):
            return parts[name]
    found = inspect.getattr_static(thing, name)
    if hasattr(type(found), "__get__") and not inspect.isroutine(found):
        raise AttributeError(name)
    return found


def _parts(own: dict[str, Any], key: str) -> dict[str, Any]:
    """What a torch module keeps by a key; another class may mean anything by it."""
    parts: Any = own.get(key)
    return parts if type(parts) in {dict, OrderedDict} else {}


def _own(thing: object) -> dict[str, Any]:
    """What an object holds itself; nothing where its class computes that."""
    places = (cls.__dict__["__dict__"] for cls in _MRO(type(thing)) if "__dict__" in cls.__dict__)
    if type(next(places, None)) not in _OWN:
        return {}
    try:
        return dict(object.__getattribute__(thing, "__dict__"))
    except AttributeError:
        return {}
