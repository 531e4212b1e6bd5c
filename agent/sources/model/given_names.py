"""What models and optimizers are called: each by a name of its own, as long as the process runs.

Rules of this file: runs in any thread, once per object; keeps nothing alive. An object goes by
the variable that holds it when its name is first asked for, where that is known, else by its class;
of several with one name the later ones have a number, up to a limit. Who asks from a thread in
which nothing of the script runs, as the agent does, may ask before the script has: what finds no
variable there is named by the script's first question after all.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ....ring.names import joined
from ..calls.names.class_names import class_name, unwrap
from ..torch_types import Module
from .variables import sees_script, variable_of

_FEW = 64
_MOST_NUMBERED = 100
"""How many of one name are told apart: beyond that, what is made anew in each step would fill the
record with names."""


class _Known(NamedTuple):
    """A name that was given.

    Attributes:
        of: What it is the name of.
        stays: Whether the script's variables were looked at for it.
    """

    of: weakref.ref[Any]
    name: str
    stays: bool


class GivenNames:
    """The names of some kind of objects."""

    def __init__(self, class_of: Callable[[Any], str]) -> None:
        self._class_of = class_of
        self._known: dict[int, _Known] = {}
        self._given: dict[str, int] = {}
        self._most = _FEW

    def name_of(self, thing: object) -> str:
        """The name of an object, that it keeps."""
        known = self._known.get(id(thing))
        if known is not None and known.of() is not thing:
            known = None
        if known is not None and (known.stays or not sees_script()):
            return known.name
        variable = self._variable_of(thing)
        if variable is None and known is not None:
            name = known.name
        else:
            name = self._numbered(variable or self._class_of(thing))
        stays = variable is not None or known is not None or sees_script()
        self._known[id(thing)] = _Known(weakref.ref(thing), name, stays)
        if len(self._known) > self._most:
            self._forget_dead()
        return name

    def _numbered(self, wanted: str) -> str:
        """A name, with a number where others have it."""
        count = self._given[wanted] = self._given.get(wanted, 0) + 1
        return f"{wanted} {count}" if 1 < count <= _MOST_NUMBERED else wanted

    def _variable_of(self, thing: Any) -> str | None:
        return variable_of(thing)

    def _forget_dead(self) -> None:
        """Forget what lives no more: some programs make a model anew in each step."""
        for key, known in self._known.copy().items():
            if known.of() is None:
                self._known.pop(key, None)
        self._most = max(_FEW, 2 * len(self._known))


class ModelNames(GivenNames):
    """Those of root modules, whatever is wrapped around them."""

    def __init__(self) -> None:
        super().__init__(lambda root: class_name(unwrap(root)))

    def _variable_of(self, thing: Any) -> str | None:
        """That of the model itself; else that of what is wrapped around it."""
        return variable_of(unwrap(thing)) or variable_of(thing)

    def root_text(self, root: Module) -> str:
        """The class of a root and its name, as a text of two parts."""
        return joined(class_name(unwrap(root)), self.name_of(root))


def optimizer_names() -> GivenNames:
    """Those of optimizers."""
    return GivenNames(lambda optimizer: type(optimizer).__name__)
