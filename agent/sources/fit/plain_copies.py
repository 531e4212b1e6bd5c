"""Copies containers and objects of Python, and puts something else where a copy would do harm.

Rules of this file: nothing here knows tensors or modules. A copy has the files, handles and numbers
of what it is a copy of: where its class has a ``__del__``, the end of the copy would close or free
them for the training. Neither is such a thing shared, nor what is not written in Python, since the
step of a copy could change it. A `StandIn` takes its place, which refuses as soon as it is used.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import decimal
import enum
import functools
import logging
import pathlib
import random
import re
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from ....errors import FitRefused
from ..storage.living import MRO

T = TypeVar("T")

Copy = Callable[..., Any]
_MOST_LOOKED_AT = 1000
_DEEPEST = 5
PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
_NEVER_CHANGED = (
    *PLAIN, range, slice, type(...), type(NotImplemented), type, property, staticmethod,
    classmethod, types.ModuleType, types.CodeType, types.GenericAlias, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.GetSetDescriptorType, types.MethodWrapperType, enum.Enum,
    re.Pattern, dt.date, dt.time, dt.timedelta, dt.tzinfo, decimal.Decimal,
    pathlib.PurePath, random.SystemRandom,
)  # fmt: skip
_OF_TORCH = ("dtype", "device", "layout", "memory_format", "qscheme", "finfo", "iinfo")
_SHARED_MODULES = ("typing", "operator", "torch._ops")
_APART = frozenset(
    {"asyncio", "concurrent", "contextvars", "ctypes", "mmap", "multiprocessing", "queue"}
    | {"selectors", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading"}
)
_LOCKS = {type(make()): make for make in (threading.Lock, threading.RLock)}
_CONTAINERS = (OrderedDict, defaultdict, dict, list, set, deque)  # what is derived comes first
_SMALL_BYTES = 1 << 20


class NoCopy(Exception):
    """A `StandIn` must be used."""


class StandIn:
    """Takes the place of what cannot be copied; refuses when the step uses it."""

    __slots__ = ("__weakref__", "_probing_what")

    def __init__(self, value: object, path: str) -> None:
        where = f"{path}, " if path else ""
        object.__setattr__(self, "_probing_what", f"{where}a {type(value).__name__}")

    def __getattribute__(self, name: str) -> Any:
        """Refuse, but for what its own class is asked."""
        if name == "__class__":
            return StandIn
        what = object.__getattribute__(self, "_probing_what")
        raise FitRefused(f"the step uses {what}, of which no copy can be made that does no harm")


def _use(self: Any, *_args: object, **_kwargs: object) -> Any:
    return self.used  # which refuses


_OPERATIONS = (
    "setattr delattr call iter next len getitem setitem delitem contains bool enter exit index int"
    " float add radd sub rsub mul rmul matmul truediv floordiv mod pow iadd isub imul and or xor"
    " neg lt le gt ge await"
)
for _name in _OPERATIONS.split():
    setattr(StandIn, f"__{_name}__", _use)


def copied_container(value: Any, copied: Copy, remember: Copy) -> Any:
    """The copy of a container and of what is in it, or itself where nothing of it can change.

    Args:
        copied: Makes the copy of a part.
        remember: Is given the copy before it has any parts, which may hold the container again.

    Raises:
        NoCopy: It is of a class that cannot be made empty.
    """
    if isinstance(value, (tuple, frozenset)):
        return _copied_tuple(value, copied)
    kind: Any = type(value)
    base: Any = next(c for c in _CONTAINERS if isinstance(value, c))
    try:
        fresh = base.__new__(kind)
    except TypeError:
        raise NoCopy from None
    remember(fresh)
    if base is deque:
        deque.__init__(fresh, (), value.maxlen)
    if base is defaultdict:
        fresh.default_factory = copied(value.default_factory)
    items = list(base.items(value) if issubclass(base, dict) else base.__iter__(value))
    if issubclass(base, dict):
        for key, item in items:
            base.__setitem__(fresh, _key(key, copied), copied(item))
    elif base is set:
        set.update(fresh, [_key(item, copied) for item in items])
    else:
        base.extend(fresh, items if PLAIN.issuperset(map(type, items)) else map(copied, items))
    copy_state(value, fresh, copied)
    return fresh


def _copied_tuple(value: Any, copied: Copy) -> Any:
    make = _key if isinstance(value, frozenset) else lambda item, copied: copied(item)
    parts = [make(item, copied) for item in value]
    if all(part is item for part, item in zip(parts, value, strict=True)):
        return value
    base: Any = frozenset if isinstance(value, frozenset) else tuple
    try:
        fresh = base.__new__(type(value), parts)
    except TypeError:  # such as what torch.max returns
        fresh = type(value)(parts)
    copy_state(value, fresh, copied)
    return fresh


def _key(value: Any, copied: Copy) -> Any:
    """The copy of a key; of one with a hash of its own, which may not be changed, itself."""
    kind: Any = type(value)
    is_by_identity = kind.__hash__ is object.__hash__
    has_tensor = hasattr(kind, "__torch_function__") or hasattr(kind, "_call_impl")
    return copied(value) if is_by_identity or has_tensor or kind is tuple else value


def copy_state(value: object, fresh: object, copied: Copy) -> bool:
    """Give a copy what an object has in its ``__dict__`` and in its slots; whether it has any."""
    has_any = hasattr(value, "__dict__")
    for name, part in list(vars(value).items()) if has_any else ():
        vars(fresh)[name] = copied(part, name)
    slots = _slots(type(value))
    for slot in slots:
        with contextlib.suppress(AttributeError):  # nothing is in it
            slot.__set__(fresh, copied(slot.__get__(value), slot.__name__))
    return has_any or bool(slots)


def _is_heap(kind: type) -> bool:
    """Whether a class is written in Python, or made as one that is."""
    return bool(kind.__flags__ & 1 << 9)


def _slots(kind: type) -> list[Any]:
    """Those of a class and of its bases that are written in Python."""
    own = [part for base in filter(_is_heap, MRO(kind)) for part in vars(base).values()]
    return [slot for slot in own if type(slot) is types.MemberDescriptorType]


def is_never_changed(value: object, torch: Any) -> bool:
    """Whether something may be shared, since no code changes it."""
    kind = type(value)
    shared = (*_NEVER_CHANGED, *[getattr(torch, name) for name in _OF_TORCH])
    is_of_c = hasattr(kind, "__members__") and kind.__module__.startswith("torch")
    return isinstance(value, shared) or is_of_c or kind.__module__ in _SHARED_MODULES


def copied_object(value: Any, path: str, copied: Copy, remember: Copy) -> Any:
    """The copy of an object, or what stands in for it."""
    kind = type(value)
    owner = kind.__module__.partition(".")[0]
    if kind is types.CellType:
        return _copied_cell(value, copied, remember(types.CellType()))
    made = _MADE.get(kind) or (_logger if isinstance(value, logging.Logger) else None)
    if made is not None:
        return remember(made(value, copied))
    if kind in _LOCKS:
        return remember(_LOCKS[kind]())
    if hasattr(kind, "__del__") or isinstance(value, logging.Handler) or is_apart(kind):
        return remember(StandIn(value, path))
    if isinstance(value, random.Random) or kind.__module__.startswith("numpy.random."):
        return remember(copy.deepcopy(value))
    arrays = _arrays()
    if owner == "numpy" or isinstance(value, arrays):
        return remember(_array(value, path) if isinstance(value, arrays) else value)
    try:
        is_namespace = kind is types.SimpleNamespace
        fresh = types.SimpleNamespace() if is_namespace else object.__new__(kind)
    except TypeError:  # it is more than a Python object
        return remember(StandIn(value, path))
    remember(fresh)
    return fresh if copy_state(value, fresh, copied) else remember(value)


def object_with(wanted: type, arguments: object, passed_over: type) -> Any:
    """An object among some arguments that holds one of a class in its attributes; None without one.

    Lists, tuples and dictionaries are no such objects. No code of theirs runs.

    Args:
        passed_over: What is of this class is not looked into.
    """
    left_out = {wanted, passed_over, type, types.ModuleType, *PLAIN}
    waiting: list[tuple[Any, Any, int]] = [(arguments, None, 0)]
    for _ in range(_MOST_LOOKED_AT):
        if not waiting:
            break
        value, holder, depth = waiting.pop()
        mro = MRO(type(value))
        if wanted in mro and holder is not None:
            return holder
        parts: list[Any] = []
        if dict in mro:
            parts = list(islice(dict.values(value), _MOST_LOOKED_AT))
        elif list in mro or tuple in mro:
            kind: Any = list if list in mro else tuple
            parts = list(kind.__getitem__(value, slice(_MOST_LOOKED_AT)))
        elif depth < _DEEPEST and left_out.isdisjoint(mro) and _is_heap(type(value)):
            holder, depth = value if holder is None else holder, depth + 1
            parts = _attributes(value)
        waiting += [(part, holder, depth) for part in parts]
    return None


def _attributes(value: Any) -> list[Any]:
    """What an object of a class written in Python has, as far as that takes no code of its own."""
    found: list[Any] = []
    for slot in _slots(type(value)):
        with contextlib.suppress(AttributeError):  # it is not set
            found.append(slot.__get__(value))
    with contextlib.suppress(AttributeError):
        found += list(object.__getattribute__(value, "__dict__").values())
    return found


def is_apart(kind: type) -> bool:
    """Whether objects of a class have to do with other threads, processes or files."""
    roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return not roots.isdisjoint(_APART) or kind.__module__.startswith("torch.utils.data")


def _arrays() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.ndarray,)


def _array(value: Any, path: str) -> Any:
    """A copy of an array of numpy, or what is read-only where that is large."""
    if value.dtype.hasobject:
        return StandIn(value, path)
    if value.nbytes <= _SMALL_BYTES:
        return value.copy()
    view = value.view()
    view.flags.writeable = False
    return view


def _function(value: Any, copied: Copy) -> Any:
    """A function whose variables and defaults are copies, where it has any that can change."""
    defaults = copied(value.__defaults__), copied(value.__kwdefaults__)
    is_same = defaults[0] is value.__defaults__ and not defaults[1]
    if str(value.__module__).startswith("torch.") or (is_same and value.__closure__ is None):
        return value
    cells = value.__closure__ and tuple([copied(cell) for cell in value.__closure__])
    fresh: Any = types.FunctionType(value.__code__, value.__globals__, value.__name__, None, cells)
    fresh.__defaults__, fresh.__kwdefaults__ = defaults
    fresh.__qualname__, fresh.__module__ = value.__qualname__, value.__module__
    copy_state(value, fresh, copied)
    return fresh


def _copied_cell(value: types.CellType, copied: Copy, fresh: types.CellType) -> types.CellType:
    """Where a function has a variable from around it."""
    with contextlib.suppress(ValueError):  # it is empty
        fresh.cell_contents = copied(value.cell_contents)
    return fresh


def _logger(value: logging.Logger, _copied: Copy) -> logging.Logger:
    """One that writes nothing."""
    fresh = logging.Logger(value.name)  # noqa: LOG001 - nothing else may find it
    fresh.disabled = True
    return fresh


def _built_in(value: types.BuiltinMethodType, copied: Copy) -> Any:
    """A function of C, or the method of a copy."""
    owner = value.__self__
    is_free = owner is None or isinstance(owner, (types.ModuleType, type))
    return value if is_free else getattr(copied(owner), value.__name__)


def _reference(value: Any, copied: Copy) -> Any:
    there = value()
    fresh = copied(there)
    return value if fresh is there else weakref.ref(fresh)


def _weak_items(value: Any, copied: Copy) -> Any:
    return type(value)([(copied(key), copied(item)) for key, item in list(value.items())])


def _cached(value: Any, copied: Copy) -> Any:
    """A function with a cache of its own."""
    return functools.lru_cache(**value.cache_parameters())(copied(value.__wrapped__))


def _partial(value: Any, copied: Copy) -> Any:
    return functools.partial(copied(value.func), *copied(value.args), **copied(value.keywords))


_MADE: dict[type, Callable[[Any, Copy], Any]] = {
    types.FunctionType: _function,
    types.BuiltinMethodType: _built_in,
    types.MethodType: lambda value, copied: types.MethodType(
        value.__func__, copied(value.__self__)
    ),
    functools.partial: _partial,
    type(functools.lru_cache(len)): _cached,
    weakref.ref: _reference,
    weakref.WeakSet: lambda value, copied: weakref.WeakSet(map(copied, list(value))),
    weakref.WeakKeyDictionary: _weak_items,
    weakref.WeakValueDictionary: _weak_items,
    bytearray: lambda value, _copied: bytearray(value),
}


def is_container(value: object) -> bool:
    """Whether something is one, or is of a class derived from one."""
    return isinstance(value, (tuple, frozenset, *_CONTAINERS))


def things_in(value: object, kind: type[T]) -> list[T]:
    """The things of a kind in nested containers, such as tensors."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        return [one for part in value.values() for one in things_in(part, kind)]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in things_in(part, kind)]
    return []
