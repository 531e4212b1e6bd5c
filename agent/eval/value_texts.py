"""The value of an eval's last expression as text.

Rules of this file: the text is the value's own ``repr`` as long as that is short; of what can be
huge, only the beginning is made into text at all. Interruptions pass through.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ..sources.numbers.tensor_texts import is_tensor, tensor_text
from .code import EvalInterrupted, name_of

_MOST_ITEMS = 1000
_MOST_TENSORS = 50
_MOST_INNER_TENSORS = (3, 8)
"""How many tensors of a container are shown within another one, of a list and of a dictionary."""
_DEEPEST = 8
_LONGEST_INT_BITS = 12_000
"""Python itself refuses to write longer ones in decimal."""
_ENDS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
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
    return text[:limit], omitted + max(0, len(text) - limit)


def _text(value: Any, limit: int) -> tuple[str, int]:
    """The text of a value; what is known to be left out of a long string."""
    if is_tensor(value):
        return tensor_text(value), 0
    if type(value) in (str, bytes) and len(value) > limit:
        return repr(value[:limit]), len(value) - limit
    return (repr(value) if _is_short(value, [_MOST_ITEMS]) else _shortened(value, 0)), 0


def _is_short(value: Any, left: list[int], depth: int = 0) -> bool:
    """Whether a value holds few items and no tensor, as far as it is made of plain containers."""
    kind = type(value)
    if kind is int:
        return bool(value.bit_length() <= _LONGEST_INT_BITS)
    if kind not in _ENDS:
        return not is_tensor(value)
    left[0] -= len(value)
    if left[0] < 0:
        return False
    items = value.values() if kind is dict else value
    return depth > _DEEPEST or all(_is_short(item, left, depth + 1) for item in list(items))


def _shortened(value: Any, depth: int) -> str:
    """The text of a container, with the first of its items and tensors in one line each."""
    kind = type(value)
    if is_tensor(value):
        return f"<{tensor_text(value, is_inner=True)}>"
    if kind is int and value.bit_length() > _LONGEST_INT_BITS:
        return f"<int of {value.bit_length():,} bits>"
    if kind not in _ENDS:
        return repr(value)
    begin, end = _ENDS[kind]
    if depth > _DEEPEST:
        return f"{begin}...{end}"
    texts = list(_items(value, depth + 1))
    if len(value) > len(texts):
        texts.append(f"... {len(value) - len(texts):,} more")
    comma = "," if kind is tuple and len(texts) == 1 else ""
    joint = ",\n " if depth == 0 and any("<Tensor" in t or "<Param" in t for t in texts) else ", "
    return f"{begin}{joint.join(texts)}{comma}{end}"


def _items(value: Any, depth: int) -> Iterable[str]:
    pairs = type(value) is dict
    first = list(islice(value.items() if pairs else value, _MOST_ITEMS))
    room = _MOST_TENSORS if depth == 1 else _MOST_INNER_TENSORS[pairs]
    for item in first:
        inner = item[1] if pairs else item
        room -= is_tensor(inner)
        if room >= 0 or not is_tensor(inner):
            yield f"{item[0]!r}: {_shortened(inner, depth)}" if pairs else _shortened(inner, depth)
