"""Which name a module goes by: its qualified name in its root.

Rules of this file: runs in the training threads, once per module and not per call. A module is
known by its identity; a weak reference forgets it as it dies, before its identity is reused.
Nothing is stored on the user's modules.
"""

from __future__ import annotations

import functools
import struct
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .....ring.names import joined
from .....ring.writer import Names
from .....safety.guard import Guard
from ...model.given_names import ModelNames
from ...torch_types import Module
from .class_names import class_name, is_wrapper_child, parameters_in
from .direct_calls import owner_of

IDS = struct.Struct("<III")
_FEW = 16
"""How many bare modules of one class, such as a loss made anew in each step, are called and die
before those to come are looked for in no variable of the script: that takes long."""


class _Reference(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that knows the key to forget, and the class of a bare module."""

    __slots__ = ("bare", "key")
    bare: str
    key: int


class ModuleNames:
    """Maps modules to their names.

    Attributes:
        known: By ``id(module)``: the numbers of its name, class and root class, packed as they
            stand in a row; nothing for a module that is left out of the record.
        paths: By ``id(module)``: its name.
        with_parameters: The numbers of roots that have parameters.
        on_change: Called when what is known of a module is no longer what it was.
        owners: By ``id(module)``: the root of a module that is called past the root's own call.
        wholes: The root below which a module was named last, by the same.
        on_forget: Called with the identity of a module that has died, or goes by another name.
        guard: Counts what fails as a module dies, which Python would print.
    """

    def __init__(self, names: Names, models: ModelNames) -> None:
        self.known: dict[int, bytes] = {}
        self.paths: dict[int, str] = {}
        self.with_parameters: set[bytes] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.owners: dict[int, weakref.ref[Any]] = {}
        self.wholes: dict[int, weakref.ref[Any]] = {}
        self.on_forget: Callable[[int], None] = lambda _: None
        self.guard = Guard("module names", self.forget_all)
        self.guard.on_fault = self.forget_all  # else another module may get a dead one's name
        self._left_out: dict[int, bytes] = {}
        self._names = names
        self._models = models
        self._references: dict[int, _Reference] = {}
        self._unrooted: set[type] = set()
        self._gone: dict[str, int] = {}  # by class: bare modules that were called alone, and died

    def learn_call(self, module: Module) -> bytes:
        """Name a module that was met outside of any call; returns its numbers.

        Where it is called by the `forward` of another one, which itself was called by that name,
        that one is its root. One without anything in it whose like is made anew again and again
        goes by its class.
        """
        is_bare, kind = not (module._modules or module._parameters), type(module).__qualname__
        if is_bare and self._gone.get(kind, 0) >= _FEW:
            name = class_name(module)
            return self._remember(module, name, joined(name, name))
        owner = owner_of(module)
        if owner is None:
            ids = self.learn_root(module)
            self._references[id(module)].bare = kind if is_bare else ""
            return ids
        self.learn_root(owner)
        for _, part in walk(owner, "", set()):
            if part is not owner:
                self.owners[id(part)] = weakref.ref(owner)
        return self.known[id(module)]

    def root_of(self, module: Module) -> Any:
        """The root that a module called from outside is part of; most are roots themselves."""
        reference = self.owners.get(id(module))
        owner = reference() if reference is not None else None
        return module if owner is None else owner

    def whole_of(self, module: Module) -> Any:
        """The root that a module was named below last: itself, where it is one; None if unknown."""
        reference = self.wholes.get(id(module))
        return reference() if reference is not None else None

    def learn_root(self, root: Module) -> bytes:
        """Name a root and everything below it; returns the root's own numbers."""
        text, reference = self._models.root_text(root), weakref.ref(root)
        for path, module in walk(root, "", set()):
            self._remember(module, path or class_name(module), text)
            self.wholes[id(module)] = reference
        if next(parameters_in(root), None) is not None:
            self.with_parameters.add(self.known[id(root)])
        return self.known[id(root)]

    def learn_inside(self, module: Module, root: Module) -> bytes:
        """Name a module that was met inside a call of `root`.

        It may have been added to the root since; a class that was once not found below its
        root is made anew in each forward, and goes by its class name from then on.
        """
        if type(module) not in self._unrooted:
            self.learn_root(root)
            if id(module) in self.known:
                return self.known[id(module)]
            self._unrooted.add(type(module))
        return self._remember(module, class_name(module), self._models.root_text(root))

    def ids_of(self, key: int) -> bytes:
        """The numbers of a known module, also of one that is left out of the record."""
        return self.known[key] or self._left_out[key]

    def place_of(self, key: int) -> str:
        """Its name, told apart from the same name in another root; nothing is around a root."""
        root = IDS.unpack(self.ids_of(key))[2]
        return f"{root}:{self.paths[key]}"

    def is_leaf(self, key: int) -> bool:
        """Whether a module has none inside it."""
        reference = self._references.get(key)
        module = reference() if reference is not None else None
        return module is not None and not module._modules

    def leave_out(self, keys: list[int]) -> None:
        """Leave these modules out of the record, and no others."""
        self.known.update(self._left_out)
        self._left_out = {key: self.known[key] for key in keys}
        self.known.update(dict.fromkeys(keys, b""))
        self.on_change()

    def forget_all(self) -> None:
        """Let go of every module."""
        mine = (self.known, self.paths, self._references, self._left_out, self.owners, self.wholes)
        for names in mine:
            names.clear()
        self.on_change()

    def _remember(self, module: Module, name: str, root: str) -> bytes:
        """Keep a module's numbers until it dies."""
        key = id(module)
        intern = self._names.intern
        packed = IDS.pack(intern(name), intern(class_name(module)), intern(root))
        reference = _Reference(module, functools.partial(self.guard.run, self._forget))
        reference.key, reference.bare = key, ""
        self._references[key] = reference
        self.paths[key] = name
        self._left_out.pop(key, None)
        before = self.known.get(key)
        self.known[key] = packed
        if before is not None:
            self.on_change()
            if before != packed:
                self.on_forget(key)  # whatever was made with its old name
        return packed

    def _forget(self, reference: _Reference) -> None:
        """Called as a module dies."""
        if self._references.get(reference.key) is reference:
            del self._references[reference.key]
            if reference.bare:
                self._gone[reference.bare] = self._gone.get(reference.bare, 0) + 1
            for names in (self.known, self.paths, self._left_out, self.owners, self.wholes):
                names.pop(reference.key, None)
            self.on_change()
            self.on_forget(reference.key)


def walk(module: Module, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Every module below and including one, with its path, each once."""
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    for name, child in list(module._modules.items()):
        if child is None:
            continue
        if is_wrapper_child(module, name):
            yield from walk(child, path, seen)
        else:
            yield from walk(child, f"{path}.{name}" if path else name, seen)


def outermost(roots: list[Module]) -> list[Any]:
    """Those of some root modules that are not also inside another one of them."""
    inside = {
        id(module) for root in roots for _, module in walk(root, "", set()) if module is not root
    }
    return [root for root in roots if id(root) not in inside]
