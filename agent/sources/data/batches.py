"""What a batch is made of: names, types and sizes of its tensors.

Rules of this file: runs in the training threads, once per batch. Reads facts that lie beside a
tensor's data, never the data; keeps no tensor; runs no code of a batch's own class. What it looks
at is bounded, and so is what it remembers.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from ....ring.format import NULL_BOOL, NULL_INT, NULL_NAME
from ....ring.writer import Names
from ..accelerator import is_in_use
from ..torch_types import Tensor

_MOST_TENSORS = 32
_PLACES = tuple([str(place) for place in range(_MOST_TENSORS)])
_SEQUENCES = frozenset({list, tuple})
_MOST_ITEMS = 256
_DEEPEST = 4
_MOST_KINDS = 512
_LONGEST = 1000
_MOST_BYTES = (1 << 63) - 1
"""As much as a column holds; what is expanded from one element may seem to be more."""
_MRO: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_TOKEN_TYPES = frozenset({"int16", "int32", "int64", "uint16", "uint32", "uint64"})


class BatchFacts(NamedTuple):
    """One batch, as the closing columns of python.batches store it."""

    pinned: int
    tensors: int
    device: int
    samples: int
    tokens: int
    bytes: int


NO_FACTS = BatchFacts(NULL_BOOL, NULL_NAME, NULL_NAME, NULL_INT, NULL_INT, NULL_INT)
"""Of a batch that has not come, or has no tensors."""


_Kind = tuple[int, int, int, int]
"""What all batches with the same names, types and sizes have in common: the number of the text that
describes them, samples, tokens and bytes."""


class BatchKinds:
    """Describes batches, and remembers the kinds that it has met."""

    def __init__(self, names: Names) -> None:
        self._torch: Any = sys.modules["torch"]
        self._plain: Any = self._torch.Tensor
        self._strided: Any = self._torch.strided
        self._names = names
        self._known: dict[tuple[object, ...], _Kind] = {}
        self._general: set[str] = set()
        self._devices: dict[object, int] = {}

    def facts_of(self, batch: object, *, is_collated: bool, is_pinned: bool) -> BatchFacts:
        """What is known of a batch.

        Args:
            is_collated: Whether the loader has put it together from samples.
            is_pinned: Whether the loader has put it into pinned memory.
        """
        plain = self._plain
        found = tensors_of(batch, plain)
        if not found:
            return NO_FACTS
        key: list[object] = [is_collated]
        for name, tensor in found:
            if (
                type(tensor) is plain
                and tensor.layout is self._strided
                and not tensor.is_nested  # its sizes cannot be asked for
            ):
                key += (name, tensor.dtype, tensor.shape)
            else:
                key += (name, *self._shape_of(tensor))
        known = tuple(key)
        tensors, samples, tokens, size = self._known.get(known) or self._learn(known)
        device, pinned = self._place_of(found[0][1], is_pinned=is_pinned)
        return BatchFacts(pinned, tensors, device, samples, tokens, size)

    def _shape_of(self, tensor: Any) -> tuple[object, object]:
        """Type and size of any tensor; a type that says so for what is not strided."""
        with self._torch._C.DisableTorchFunctionSubclass():
            dtype, layout = tensor.dtype, tensor.layout
            shape = None if getattr(tensor, "is_nested", False) else tensor.shape
        if layout is not self._strided:
            return f"{_short(layout)} {_short(dtype)}", shape
        return (f"nested {_short(dtype)}" if shape is None else dtype), shape

    def _place_of(self, tensor: Tensor, *, is_pinned: bool) -> tuple[int, bool]:
        """The number of its device's name, and whether it is in pinned memory."""
        if type(tensor) is not self._plain:
            with self._torch._C.DisableTorchFunctionSubclass():
                return self._place_of_plain(tensor, is_pinned=is_pinned)
        return self._place_of_plain(tensor, is_pinned=is_pinned)

    def _place_of_plain(self, tensor: Tensor, *, is_pinned: bool) -> tuple[int, bool]:
        """The same, of a tensor that runs no code of its own when it is asked."""
        device = tensor.device
        number = self._devices.get(device)
        if number is None:
            number = self._devices[device] = self._names.intern(str(device))
        # Only a device that is in use has pinned memory, and only then the question is safe.
        may_be = is_pinned or is_in_use()
        return number, bool(may_be and device.type == "cpu" and tensor.is_pinned())

    def _learn(self, key: tuple[object, ...]) -> _Kind:
        """Work out what a kind of batch has in common, and remember it while there is room."""
        names, dtypes, shapes = key[1::3], key[2::3], key[3::3]
        tensors = list(zip(names, dtypes, shapes, strict=True))
        kind = (
            self._text_of(tensors),
            _samples(shapes, is_collated=bool(key[0])),
            _tokens(dtypes, shapes),
            _bytes(dtypes, shapes),
        )
        if len(self._known) < _MOST_KINDS:
            self._known[key] = kind
        return kind

    def _text_of(self, tensors: list[tuple[Any, Any, Any]]) -> int:
        """The number of the text that describes the tensors; NULL when there are too many texts."""
        if len(self._known) < _MOST_KINDS:
            return self._names.intern(_text(tensors, is_exact=True))
        text = _text(tensors, is_exact=False)
        if text not in self._general and len(self._general) >= _MOST_KINDS:
            return NULL_NAME
        self._general.add(text)
        return self._names.intern(text)


def tensors_of(batch: Any, plain: object) -> list[tuple[str, Any]]:
    """The tensors in a batch by name, in order, as many as are looked at.

    Args:
        plain: The class of tensors, `torch.Tensor`.
    """
    kind = type(batch)
    if kind is plain:
        return [("", batch)]
    if kind is dict and len(batch) <= _MOST_TENSORS:  # the usual batch, at the least cost
        found = list(batch.items())
        for name, value in found:
            if type(value) is not plain or type(name) is not str:
                return _search(batch, plain)
        return found
    if kind in _SEQUENCES and len(batch) <= _MOST_TENSORS:  # and what most loaders make of pairs
        found = list(zip(_PLACES, batch, strict=False))
        for _, value in found:
            if type(value) is not plain:
                return _search(batch, plain)
        return found
    return _search(batch, plain)


def _search(batch: object, plain: object) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    items = 0
    todo: list[tuple[str, Any, int]] = [("", batch, 0)]
    while todo and items < _MOST_ITEMS and len(found) < _MOST_TENSORS:
        name, value, depth = todo.pop()
        items += 1
        if plain in _MRO(type(value)):
            found.append((name, value))
        elif depth < _DEEPEST:
            inner = list(_parts(value))
            prefix = f"{name}." if name else ""
            todo += [(prefix + key, part, depth + 1) for key, part in reversed(inner)]
    return found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, by name; nothing for anything else."""
    mro = _MRO(type(value))
    if UserDict in mro:
        value, mro = object.__getattribute__(value, "__dict__").get("data"), (dict,)
    if dict in mro:
        for key, part in list(islice(dict.items(value), _MOST_ITEMS)):
            yield (str(key) if type(key) in (str, int) else type(key).__name__), part
    elif tuple in mro or list in mro:
        kind: Any = tuple if tuple in mro else list
        fields = getattr(type(value), "_fields", ()) if kind is tuple else ()
        for index, part in enumerate(kind.__getitem__(value, slice(_MOST_ITEMS))):
            yield (fields[index] if index < len(fields) else str(index)), part
    elif any("pin_memory" in c.__dict__ or "__dataclass_fields__" in c.__dict__ for c in mro):
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        yield from list(own.items())[:_MOST_ITEMS]


def _text(tensors: list[tuple[Any, Any, Any]], *, is_exact: bool) -> str:
    """Names, types and sizes in words, of as many tensors as fit."""
    words: list[str] = []
    length = 0
    for name, dtype, shape in tensors:
        sizes = ["?"] if shape is None else [str(size) for size in shape]
        if not is_exact:
            sizes[1:] = ["?"] * (len(sizes) - 1)
        word = f"{name}: " if name else ""
        word += f"{_short(dtype)}[{','.join(sizes)}]"
        length += len(word) + 2
        if length > _LONGEST:
            words.append("...")
            break
        words.append(word)
    return ", ".join(words)


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _samples(shapes: tuple[Any, ...], *, is_collated: bool) -> int:
    """How many samples tensors of these sizes hold.

    What a loader has not put together may be one sample or a batch made elsewhere: it is taken for
    a batch when all of several tensors begin with the same size and the first has more than that.
    """
    known = [shape for shape in shapes if shape]
    if not known:
        return NULL_INT
    first = [int(shape[0]) for shape in known]
    if not is_collated:
        alike = len(shapes) > 1 and len(known) == len(shapes) and len(set(first)) == 1
        if not (alike and len(known[0]) > 1):
            return NULL_INT
    return first[0]


def _tokens(dtypes: tuple[object, ...], shapes: tuple[Any, ...]) -> int:
    """The elements of the first integer tensor with two dimensions."""
    for dtype, shape in zip(dtypes, shapes, strict=True):
        if shape is not None and len(shape) == 2 and _short(dtype) in _TOKEN_TYPES:
            return int(shape[0] * shape[1])
    return NULL_INT


def _bytes(dtypes: tuple[object, ...], shapes: tuple[Any, ...]) -> int:
    """What the elements of strided tensors take; NULL where one is not."""
    total = 0
    for dtype, shape in zip(dtypes, shapes, strict=True):
        size = getattr(dtype, "itemsize", None)
        if size is None or shape is None:
            return NULL_INT
        count = size
        for length in shape:
            count *= length
        total += count
    return int(total) if total <= _MOST_BYTES else NULL_INT
