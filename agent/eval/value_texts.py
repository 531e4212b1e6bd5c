"""The value of an eval's last expression as text.

Rules of this file: the text is the value's own ``repr`` as long as that is short; of what can be
huge, only the beginning is made into text at all: a training may be held meanwhile, and a ``repr``
in C cannot be interrupted. What is derived from a built-in container is read as that is. It is for
a person to read: it ends after some lines, which say how many are left out. What the code prints is
as long as that wants it. Interruptions pass through.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

from ..sources.numbers.tensor_texts import is_tensor, tensor_text
from .code import EvalInterrupted, name_of

_MOST_LINES = 200
"""Of a ``repr``, such as that of a model."""
_MOST_ITEM_LINES = 50
"""Of a container that is not written whole: an item of one that has tensors takes a line."""
_MOST_CHARACTERS = 12_000
"""Of a container that is not written whole: by as many, as many lines of a terminal are filled."""
_ALL = "(print() writes them)"
_MOST_ITEMS = 1000
_MOST_ITEMS_IN_ALL = 20_000
_MOST_TENSORS = 50
"""Also of one value in all, however they are nested."""
_MOST_INNER_TENSORS = (3, 8)
"""How many tensors of a container are shown within another one, of a list and of a dictionary."""
_DEEPEST = 8
_DEEPEST_WHOLE = 50
"""How deep what is nested in a short value is looked at."""
_LONGEST_STRING = 10_000
"""Of one that stands within another value."""
_LONGEST_INT_BITS = 12_000
"""Python itself refuses to write longer ones in decimal."""
_STRINGS: tuple[Any, ...] = (str, bytes, bytearray)
_PLAIN = (list, tuple, dict, set)
_DICTS: tuple[Any, ...] = (dict, OrderedDict, MappingProxyType)
_WRAPPERS: tuple[Any, ...] = (UserDict, UserList)
_ENDS: dict[Any, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    OrderedDict: ("{", "}"),
    MappingProxyType: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
    deque: ("[", "]"),
    array: ("[", "]"),
    type({}.keys()): ("[", "]"),
    type({}.values()): ("[", "]"),
    type({}.items()): ("[", "]"),
}


def represent(value: object, limit: int) -> tuple[str, int]:
    """The value as text of at most so many characters, and how many are left out.

    A representation that fails says so.
    """
    try:
        text, omitted = _text(value, limit)
    except EvalInterrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - the user's __repr__ may raise anything
        return f"<unprintable {name_of(value)}: repr raised {name_of(error)}>", 0
    text = _headed(text)
    return text[:limit], omitted + max(0, len(text) - limit)


def _headed(text: str) -> str:
    """The first lines of a text, and how many follow."""
    *head, rest = text.split("\n", _MOST_LINES)
    if len(head) < _MOST_LINES:
        return text
    return "\n".join([*head, f"... {rest.count(chr(10)) + 1:,} more lines {_ALL}"])


def _text(value: Any, limit: int) -> tuple[str, int]:
    """The text of a value; what is known to be left out of a long string."""
    if is_tensor(value):
        return tensor_text(value), 0
    base = _base_of(value, _STRINGS)
    if base is not None and base.__len__(value) > limit:
        return repr(base.__getitem__(value, slice(limit))), base.__len__(value) - limit
    is_short = base is not None or _is_short(value, [_MOST_ITEMS])
    return (repr(value) if is_short else _Shortened(limit).text(value, 0)), 0


def _base_of(value: object, kinds: Iterable[Any]) -> Any:
    """The built-in type among some that a value is of, or is derived from; None for another."""
    mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(type(value))
    return next((kind for kind in mro if kind in kinds), None)


def _parts(value: Any, base: Any) -> Iterator[Any]:
    """The items of a container; pairs of a dictionary. Runs none of its own code."""
    return iter(base.items(value) if base in _DICTS else base.__iter__(value))


def _unwrapped(value: Any) -> Any:
    """What a UserDict or UserList is around, as which it writes itself; else the value."""
    if _base_of(value, _WRAPPERS) is None:
        return value
    within = object.__getattribute__(value, "__dict__").get("data")
    return within if type(within) in _PLAIN else value


def _fields_of(value: Any, base: Any) -> tuple[str, ...]:
    """The names of a tuple's items, where its class gives them: as namedtuple, and torch's own."""
    fields = getattr(type(value), "__match_args__", ()) if base is tuple else ()
    return fields if fields and len(fields) == tuple.__len__(value) else ()


def _is_short(value: Any, left: list[int], around: tuple[int, ...] = ()) -> bool:
    """Whether a value holds few items and no tensor, as far as it is made of known containers.

    Args:
        left: How many more items it may hold.
        around: The containers that it is within; one in itself is no more than its own text says.
    """
    value = _unwrapped(value)
    if type(value) is int:
        return bool(value.bit_length() <= _LONGEST_INT_BITS)
    base = _base_of(value, _STRINGS)
    if base is not None:
        return bool(base.__len__(value) <= _LONGEST_STRING)
    base = _base_of(value, _ENDS)
    if base is None:
        return not is_tensor(value)
    if id(value) in around:
        return True
    left[0] -= base.__len__(value)
    if left[0] < 0 or len(around) > _DEEPEST_WHOLE:
        return False
    items = list(_parts(value, base))
    if base in _DICTS:
        items = list(chain.from_iterable(items))
    return all(_is_short(item, left, (*around, id(value))) for item in items)


class _Shortened:
    """Writes one value, with the first of its items and tensors in one line each.

    Args:
        limit: How many characters of it are wanted.
    """

    def __init__(self, limit: int) -> None:
        # What is left out is counted at the end of the text, which so stays within the limit.
        room = limit - min(limit // 2, 2 * _LONGEST_STRING)
        self._characters_left = min(room, _MOST_CHARACTERS)
        self._items_left = _MOST_ITEMS_IN_ALL
        self._tensors_left = _MOST_TENSORS

    def text(self, value: Any, depth: int) -> str:
        """The text of a value, or of a part of it."""
        value = _unwrapped(value)
        base = _base_of(value, _ENDS)
        if base is not None and base.__len__(value):
            return self._container(value, base, depth)
        text = self._single(value)
        self._characters_left -= len(text) + 2
        return text

    def _single(self, value: Any) -> str:
        if is_tensor(value):
            return f"<{tensor_text(value, is_inner=True)}>"
        if type(value) is int and value.bit_length() > _LONGEST_INT_BITS:
            return f"<int of {value.bit_length():,} bits>"
        base = _base_of(value, _STRINGS)
        if base is not None and base.__len__(value) > _LONGEST_STRING:
            more = f"... {base.__len__(value) - _LONGEST_STRING:,} more"
            return f"{base.__getitem__(value, slice(_LONGEST_STRING))!r}{more}"
        return repr(value)

    def _container(self, value: Any, base: Any, depth: int) -> str:
        kind, length = type(value), base.__len__(value)
        begin, end = _ENDS[base]
        if _fields_of(value, base):
            begin = f"{name_of(value)}{begin}"
        elif kind not in _PLAIN:
            begin, end = f"{name_of(value)}({begin}", f"{end})"
        if depth > _DEEPEST:
            return f"{begin}...{end}"
        texts = list(self._items(value, base, depth + 1))
        if length > len(texts):
            more = f"... {length - len(texts):,} more"
            texts.append(more if depth else f"{more} {_ALL}")
        comma = "," if kind is tuple and len(texts) == 1 else ""
        has_tensor = any("<Tensor" in text or "<Param" in text for text in texts)
        joint = ",\n " if depth == 0 and has_tensor else ", "
        return f"{begin}{joint.join(texts)}{comma}{end}"

    def _items(self, value: Any, base: Any, depth: int) -> Iterator[str]:
        is_dict, fields = base in _DICTS, _fields_of(value, base)
        room = _MOST_TENSORS if depth == 1 else _MOST_INNER_TENSORS[is_dict]
        lines = 0
        for at, item in enumerate(list(islice(_parts(value, base), _MOST_ITEMS))):
            if not self._items_left or self._characters_left <= 0:
                return
            if depth == 1 and lines >= _MOST_ITEM_LINES:
                return
            parts = item if is_dict else (item,)
            tensors = sum(map(is_tensor, parts))
            if tensors > min(room, self._tensors_left):
                continue
            room -= tensors
            self._tensors_left -= tensors
            self._items_left -= 1
            text = ": ".join([self.text(part, depth) for part in parts])
            lines += text.count("\n") + (self._tensors_left < _MOST_TENSORS)
            yield f"{fields[at]}={text}" if fields else text
