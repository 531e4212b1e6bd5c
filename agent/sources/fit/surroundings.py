"""Keeps what a step on copies can reach beside them, and puts it back as the step has ended.

Rules of this file: runs in a thread of the agent while the training is held. Reads the code of the
classes that were copied, and what that names: variables of modules and classes, variables around
functions, and what is in containers and objects there. Puts back what has become another by then,
whoever made it so: threads beside the training go on. A deque, by which threads hand things over,
is put back only where it holds a tensor without data. Only what code names is looked at, and no
more than `_MOST_THINGS`: what is found by `getattr`, in C or in libraries of Python and torch is
not.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import opcode
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from operator import is_not
from typing import Any

from ....errors import FitRefused
from ..storage.living import living
from .plain_copies import PLAIN, is_apart

_LIBRARIES = frozenset({"torch", "numpy", "probing", "__future__", *sys.stdlib_module_names}) - {
    "__main__"
}
_MOST_THINGS = 50_000
_MOST_ITEMS = 1_000_000
_WRITES = frozenset({opcode.opmap["STORE_GLOBAL"], opcode.opmap["DELETE_GLOBAL"]})
_CACHED = type(functools.lru_cache(len))
_ABSENT: Any = object()
_CONTAINERS = (dict, list, set, deque)


class Surroundings:
    """What the code of some classes can reach, as it is now; and the generators of numbers.

    Args:
        check: Is called for each thing; what it raises ends the look.

    Raises:
        FitRefused: More is in the containers than can be kept in a moment.
    """

    def __init__(self, classes: Iterable[type], check: Callable[[], None]) -> None:
        self._undo: list[Callable[[], None]] = list(_generators())
        self._seen: dict[int, Any] = {}  # by identity, and kept so that it stays its own
        self._todo: deque[Any] = deque(classes)
        self._items = 0
        while self._todo and len(self._seen) < _MOST_THINGS:
            thing = self._todo.popleft()
            if type(thing) not in PLAIN and id(thing) not in self._seen:
                check()
                self._seen[id(thing)] = thing
                self._look(thing)

    def put_back(self) -> None:
        """Have all be as it was; each part of it, should another fail."""
        with contextlib.ExitStack() as stack:
            for undo in self._undo:
                stack.callback(undo)

    def _look(self, thing: Any) -> None:
        """Keep what one thing has, and go on with that."""
        kind = type(thing)
        if issubclass(kind, type):
            self._look_at_class(thing)
        elif kind is types.FunctionType:
            self._look_at_function(thing)
        elif kind is _CACHED:
            self._undo.append(functools.partial(_clear, thing, thing.cache_info().misses))
            self._todo.append(thing.__wrapped__)
        elif issubclass(kind, _CONTAINERS):
            self._look_at_container(thing)
            self._look_at_object(thing)
        elif not issubclass(kind, types.ModuleType):
            self._todo.extend(_inner(thing))
            self._look_at_object(thing)

    def _look_at_class(self, kind: type) -> None:
        for base in kind.__mro__:
            is_new = base is kind or id(base) not in self._seen
            if is_new and not _is_of_library(base.__module__):
                self._seen[id(base)] = base
                own = {key: value for key, value in vars(base).items() if key[:2] != "__"}
                self._undo.append(functools.partial(_put_back_class, base, own))
                self._todo.extend(vars(base).values())

    def _look_at_function(self, function: Any) -> None:
        if _is_of_library(function.__module__):
            return
        for cell in function.__closure__ or ():
            self._look_at_cell(cell)
        self._todo.extend((function.__defaults__ or (), function.__kwdefaults__, vars(function)))
        names, written = _names_of(function.__code__)
        around = function.__globals__
        for name in names:
            value = around.get(name, _ABSENT)
            if name in written:
                self._undo.append(functools.partial(_put_back_name, around, name, value))
            if issubclass(type(value), types.ModuleType) and not _is_of_library(value.__name__):
                for part in names & vars(value).keys():
                    inner = vars(value)[part]
                    self._undo.append(functools.partial(_put_back_name, vars(value), part, inner))
                    self._todo.append(inner)
            elif value is not _ABSENT:
                self._todo.append(value)

    def _look_at_cell(self, cell: types.CellType) -> None:
        if id(cell) in self._seen:
            return
        self._seen[id(cell)] = cell
        try:
            value = cell.cell_contents
        except ValueError:  # it is empty
            return
        self._undo.append(functools.partial(_put_back_cell, cell, value))
        self._todo.append(value)

    def _look_at_container(self, thing: Any) -> None:
        self._items += len(thing)
        if self._items > _MOST_ITEMS:
            raise FitRefused(
                f"the code of the model names containers of more than {_MOST_ITEMS:,} items"
            )
        items = _items(thing)
        self._undo.append(functools.partial(_put_back_items, thing, items))
        inner = items.values() if isinstance(items, dict) else items
        if not PLAIN.issuperset(map(type, inner)):
            self._todo.extend(inner)

    def _look_at_object(self, thing: Any) -> None:
        kind = type(thing)
        own = getattr(thing, "__dict__", None) if kind.__dictoffset__ else None
        if type(own) is dict and not is_apart(kind):
            self._todo.extend((own, kind))


def left_behind(modes: list[Any], check: Callable[[], None]) -> str:
    """What holds tensors of modes whose copies have gone; "" where nothing does.

    Args:
        check: Is called before each collection, which may take long; what it raises ends the look.
    """
    own = set(map(id, modes))
    fake = _fake_class()

    def left() -> list[Any]:
        return [tensor for tensor in living((fake,))[0] if id(tensor.fake_mode) in own]

    for generation in (1, 2):  # they may hold each other
        if not left():
            return ""
        check()
        gc.collect(generation)
    found = left()
    for tensor in found:
        for holder in gc.get_referrers(tensor):
            if type(holder) is dict:
                names = [repr(key) for key, value in list(holder.items()) if value is tensor]
                return f"a dict, under {', '.join(names)}"
            if holder is not found and type(holder) is not types.FrameType:
                return f"a {type(holder).__name__}"
    return "the program" if found else ""


def _inner(thing: Any) -> Iterator[Any]:
    """The functions in what is around functions."""
    kind = type(thing)
    if kind in {staticmethod, classmethod, types.MethodType}:
        yield thing.__func__
    if kind is types.MethodType:
        yield thing.__self__
    if issubclass(kind, property):
        yield from (thing.fget, thing.fset)
    if kind is functools.partial:
        yield from (thing.func, *thing.args, *thing.keywords.values())
    if issubclass(kind, tuple):
        yield from thing


def _names_of(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The names that code uses, and those of the variables of its module that it sets."""
    names, written = set(code.co_names), set[str]()
    if not _WRITES.isdisjoint(code.co_code[::2]):
        found = dis.get_instructions(code)
        written = {str(one.argval) for one in found if one.opcode in _WRITES}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            more, also = _names_of(part)
            names, written = names | more, written | also
    return names, written


def _is_of_library(module: object) -> bool:
    return str(module).partition(".")[0] in _LIBRARIES


def _items(thing: Any) -> Any:
    """What is in a container."""
    if isinstance(thing, dict):
        return dict(dict.items(thing))
    return set(thing) if isinstance(thing, set) else list(next(_base(thing)).__iter__(thing))


def _base(thing: Any) -> Iterator[Any]:
    return (base for base in (OrderedDict, *_CONTAINERS) if isinstance(thing, base))


def _put_back_items(thing: Any, items: Any) -> None:
    now, base = _items(thing), next(_base(thing))
    if isinstance(thing, dict):
        for key in now.keys() - items.keys():
            base.__delitem__(thing, key)
        for key, item in items.items():
            if now.get(key, _ABSENT) is not item:
                base.__setitem__(thing, key, item)
    elif isinstance(thing, set):
        set.intersection_update(thing, items)
        set.update(thing, items)
    elif len(now) != len(items) or any(map(is_not, now, items)):
        if base is list:
            list.__setitem__(thing, slice(None), items)
        elif any(map(_has_no_data, now)):
            deque.clear(thing)
            deque.extend(thing, items)


def _has_no_data(item: Any) -> bool:
    """Whether an item is a tensor without data, or a dict, list or tuple with one."""
    kind, parts = type(item), [item]
    if issubclass(kind, dict):
        parts = list(dict.values(item))
    elif issubclass(kind, (list, tuple)):
        parts = list((list if issubclass(kind, list) else tuple).__iter__(item))
    return any(issubclass(type(part), _fake_class()) for part in parts)


def _fake_class() -> type:
    """The class of tensors without data."""
    kind: type = sys.modules["torch._subclasses.fake_tensor"].FakeTensor
    return kind


def _put_back_name(around: dict[str, Any], name: str, value: Any) -> None:
    if around.get(name, _ABSENT) is value:
        return
    if value is _ABSENT:
        around.pop(name, None)
    else:
        around[name] = value


def _put_back_class(kind: type, own: dict[str, Any]) -> None:
    now = {key: value for key, value in vars(kind).items() if key[:2] != "__"}
    for name in now.keys() - own.keys():
        type.__delattr__(kind, name)
    for name, value in own.items():
        if now.get(name, _ABSENT) is not value:
            type.__setattr__(kind, name, value)


def _put_back_cell(cell: types.CellType, value: Any) -> None:
    cell.cell_contents = value


def _clear(cached: Any, misses: int) -> None:
    """Empty a cache that the step has put something into."""
    if cached.cache_info().misses != misses:
        cached.cache_clear()


def _generators() -> Iterator[Callable[[], None]]:
    """What puts each generator of random numbers back that belongs to the whole process."""
    torch: Any = sys.modules["torch"]
    yield functools.partial(random.setstate, random.getstate())
    yield functools.partial(torch.set_rng_state, torch.get_rng_state())
    yield functools.partial(torch.set_default_dtype, torch.get_default_dtype())
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        yield functools.partial(numpy.random.set_state, numpy.random.get_state())
    for name in ("cuda", "xpu"):
        device = getattr(torch, name, None)
        if device is not None and getattr(device, "is_initialized", bool)():
            for generator in device.default_generators:
                yield functools.partial(generator.set_state, generator.get_state())
