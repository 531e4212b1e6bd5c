"""Short texts of values, for local variables in a backtrace.

Rules of this file: runs none of the values' own code: no ``__repr__``, no property, no iteration
but that of the built-in types themselves; reads no tensor's data. What would need any of that goes
by its class. Nothing read stays referenced, and every text has an end.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import islice
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, cast

from ....messages.common import Local
from ....safety.other_stacks import locals_of
from ...eval.frame_names import ONLY_THE_FRAMES, is_frames_copy

_LONGEST = 120
_ITEMS = 5
_LOCALS = 50
_LONGEST_INT_BITS = 512
_CO_OPTIMIZED = 1
_CLASS_MODULE: Callable[[type], Any] = type.__dict__["__module__"].__get__
_CLASS_NAME: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_SHORT_NAME: Callable[[type], str] = type.__dict__["__name__"].__get__
_MRO: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__

_NUMBERS: tuple[type, ...] = (bool, int, float, complex)
_ENDS: dict[type, str] = {list: "[]", deque: "[]", tuple: "()"}
_COLLECTIONS: tuple[type, ...] = (dict, list, tuple, set, frozenset, deque)


def read_locals(frame: FrameType) -> tuple[Local, ...]:
    """The local variables of a frame of any thread, as many as fit."""
    values = locals_of(frame)
    if type(values) is not dict and not frame.f_code.co_flags & _CO_OPTIMIZED:
        return ()  # the namespace of a class in the making, whose type may be the user's
    try:
        names = [name for name in list(values) if not name.startswith("__")]
        return tuple(
            [
                Local(name=name, value=describe(values[name]))
                for name in names[:_LOCALS]
                if name in values
            ]
        )
    finally:
        # Before 3.13 this is a copy that the frame keeps until it returns: left as it is, it would
        # keep the tensors of this moment in memory. A module's is no copy, and a debugger's is its.
        if is_frames_copy(frame, values) and sys.getrefcount(values) <= ONLY_THE_FRAMES:
            values.clear()


def describe(value: object) -> str:
    """A short text of any value."""
    text = _scalar(value) or _container(value) or _array(value) or _by_class(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _scalar(value: object) -> str | None:
    if value is None or value is Ellipsis:
        return repr(value)
    kind: Any = _builtin_base(value, (*_NUMBERS, str, bytes))
    if kind is None:
        return None
    if kind in (str, bytes):
        more = "..." if kind.__len__(value) > _LONGEST else ""
        return f"{kind.__getitem__(value, slice(_LONGEST))!r}{more}"
    if kind is int and int.bit_length(cast("int", value)) > _LONGEST_INT_BITS:
        return f"<int of {int.bit_length(cast('int', value)):,} bits>"
    text: str = kind.__repr__(value)
    return text if type(value) is kind else f"{_SHORT_NAME(type(value))}({text})"


def _container(value: object) -> str | None:
    """The first few items of a built-in container, those that are simple, and how many it has."""
    kind: Any = _builtin_base(value, _COLLECTIONS)
    if kind is None:
        return None
    count: int = kind.__len__(value)
    shown = _items(kind, value)
    if count > len(shown):
        shown.append(f"... {count:,} in all")
    name = "" if type(value) in {dict, list, tuple, set} else f"{_SHORT_NAME(type(value))} "
    ends = _ENDS.get(kind, "{}")
    return f"{name}{ends[0]}{', '.join(shown)}{ends[1]}"


def _items(kind: Any, value: Any) -> list[str]:
    try:
        if kind is dict:
            pairs = list(islice(dict.items(value), _ITEMS))
            return [f"{_item(key)}: {_item(item)}" for key, item in pairs]
        return [_item(item) for item in list(islice(kind.__iter__(value), _ITEMS))]
    except RuntimeError:  # its own thread is changing it
        return []


def _item(value: object) -> str:
    kind: Any = _builtin_base(value, _COLLECTIONS)
    if kind is not None:
        return f"<{_SHORT_NAME(type(value))} of {kind.__len__(value):,}>"
    text = _scalar(value) or _array(value) or _by_class(value)
    return text if len(text) <= _LONGEST // 2 else f"{text[: _LONGEST // 2 - 3]}..."


def _array(value: object) -> str | None:
    """Shape, type and device of a tensor or an array: facts beside its data."""
    kind = type(value)
    name = _SHORT_NAME(kind)
    if _is_of(value, "torch", "Tensor") and _keeps_torch_attributes(kind):
        tensor: Any = value
        shape, dtype, where = tensor.shape, tensor.dtype, f" {tensor.device}"
    elif _is_of(value, "numpy", "ndarray"):
        array: Any = sys.modules["numpy"].ndarray
        shape, dtype = array.shape.__get__(value), array.dtype.__get__(value)
        where = ""
    else:
        return None
    sizes = ", ".join(str(size) for size in tuple(shape))
    return f"{name}({sizes}) {str(dtype).removeprefix('torch.')}{where}"


def _is_of(value: object, module: str, name: str) -> bool:
    """Whether a value is of a class of a library, or of one derived from it."""
    cls = getattr(sys.modules.get(module), name, None)
    return cls is not None and cls in _MRO(type(value))


def _keeps_torch_attributes(kind: type) -> bool:
    """Whether a tensor's attributes are torch's own, whoever derived its class."""
    names = ("__torch_function__", "__getattribute__", "__getattr__", "shape", "dtype", "device")
    for cls in _MRO(kind):
        module = _CLASS_MODULE(cls)
        is_torch = isinstance(module, str) and module.partition(".")[0] in {"torch", "builtins"}
        if not is_torch and any(name in cls.__dict__ for name in names):
            return False
    return True


def _by_class(value: object) -> str:
    """What a value is, by its class alone; functions, classes and modules by name."""
    kind = type(value)
    if kind is ModuleType:
        name = ModuleType.__getattribute__(value, "__dict__").get("__name__", "?")
        return f"<module {name}>" if isinstance(name, str) else "<module>"
    if kind in (FunctionType, BuiltinFunctionType):
        return f"<function {value.__qualname__}>"  # type: ignore[attr-defined]
    if kind is type:
        return f"<class {_full_name(value)}>"  # type: ignore[arg-type]
    return f"<{_full_name(kind)}>"


def _full_name(cls: type) -> str:
    module = _CLASS_MODULE(cls)
    if not isinstance(module, str) or module == "builtins":
        return _CLASS_NAME(cls)
    return f"{module}.{_CLASS_NAME(cls)}"


def _builtin_base(value: object, kinds: tuple[type, ...]) -> type | None:
    """The first of some built-in types that a value is of, by its class alone."""
    mro = _MRO(type(value))
    return next((kind for kind in kinds if kind in mro), None)
