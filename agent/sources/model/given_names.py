"""What models and optimizers are called: each by a name of its own, as long as the process runs.

Rules of this file: runs in any thread, once per object; keeps nothing alive. An object goes by
the variable that holds it when its name is first asked for, where that is known, else by its class;
of several with one name the later ones have a number.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ....names import joined
from ..calls.class_names import class_name, unwrap
from .variables import variable_of


class GivenNames:
    """The names of some kind of objects."""

    def __init__(self, class_of: Callable[[Any], str]) -> None:
        self._class_of = class_of
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._given: dict[str, int] = {}

    def name_of(self, thing: Any) -> str:
        """The name of an object, that it keeps."""
        known = self._known.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        wanted = variable_of(thing) or self._class_of(thing)
        count = self._given[wanted] = self._given.get(wanted, 0) + 1
        name = wanted if count == 1 else f"{wanted} {count}"
        self._known[id(thing)] = (weakref.ref(thing), name)
        return name


class ModelNames(GivenNames):
    """Those of root modules, whatever is wrapped around them."""

    def __init__(self) -> None:
        super().__init__(lambda root: class_name(unwrap(root)))

    def root_text(self, root: Any) -> str:
        """The class of a root and its name, as a text of two parts."""
        return joined(class_name(unwrap(root)), self.name_of(root))


def optimizer_names() -> GivenNames:
    """Those of optimizers."""
    return GivenNames(lambda optimizer: type(optimizer).__name__)
