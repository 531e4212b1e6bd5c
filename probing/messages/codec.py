"""Frozen dataclasses to JSON and back.

Rules of this file: no socket, no clock, no thread, and no class of its own: the agent loads it at
its start. `encode` and `decode` are each other's mirror; any bytes at all give an object of the
class asked for, or a `BadRequest`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from binascii import crc32
from typing import Annotated, Any, TypeVar

from ..errors import BadRequest

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """The JSON of any object of this file."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> dict[str, Any]:
    """The members of a dataclass; `dataclasses.asdict` would copy all that is in them, too."""
    return {spec.name: getattr(value, spec.name) for spec in dataclasses.fields(value)}


def decode(
    cls: type[T], data: bytes | str, *, may_be_newer: bool = False, is_finite: bool = False
) -> T:
    """The object of class `cls` that `encode` made these bytes from.

    Args:
        may_be_newer: Whether a later version may have written them: members of the object that are
            not known yet are passed over.
        is_finite: Whether numbers must be finite, as in a request: no time that is none is waited
            for.

    Raises:
        BadRequest: The bytes are no such object.
    """
    try:
        raw = json.loads(data, **(_FINITE if is_finite else {}))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON ({error})") from None
    if may_be_newer and isinstance(raw, dict):
        known = {spec.name for spec in dataclasses.fields(cls)}  # type: ignore[arg-type]
        raw = {name: member for name, member in raw.items() if name in known}
    value: T = _build(cls, raw, cls.__name__)
    return value


_SUM = b'{"crc32":"%08x",'


def with_checksum(text: bytes) -> bytes:
    """The JSON of an object, for a file: its first member is the CRC-32 of the others."""
    return _SUM % crc32(text[1:]) + text[1:]


def without_checksum(data: bytes) -> bytes:
    """The JSON that `with_checksum` was given; JSON that has no checksum is left as it is.

    Raises:
        BadRequest: It is not what was written.
    """
    if b'"crc32"' not in data[:64]:
        return data
    rest = data[len(_SUM % 0) :]
    if data != with_checksum(b"{" + rest):
        raise BadRequest("the file is damaged: its checksum is that of other text")
    return b"{" + rest


def _finite(text: str) -> float:
    """A number that is one, whatever JSON in Python takes for it."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no number")
    return value


_FINITE: dict[str, Any] = {"parse_float": _finite, "parse_constant": _finite}


def _build(kind: Any, raw: Any, where: str) -> Any:
    """Check `raw` against a type annotation and build what it describes."""
    origin = typing.get_origin(kind)
    if origin in {types.UnionType, typing.Union}:
        return _build_union(kind, raw, where)
    if origin is Annotated:
        value = _build(float, raw, where)
        if value <= 0:
            raise BadRequest(f"{where} must be {typing.get_args(kind)[1]}")
        return value
    if origin is tuple:
        if not isinstance(raw, list):
            raise BadRequest(f"{where} must be a list")
        item = typing.get_args(kind)[0]
        return tuple(_build(item, entry, f"{where}[{i}]") for i, entry in enumerate(raw))
    if dataclasses.is_dataclass(kind):
        return _build_object(kind, raw, where)
    if kind is float and type(raw) is int:
        try:
            return float(raw)
        except OverflowError:
            raise BadRequest(f"{where} is too large") from None
    if type(raw) is not kind:
        raise BadRequest(f"{where} must be {kind.__name__}")
    return raw


def _build_union(kind: Any, raw: Any, where: str) -> Any:
    members = typing.get_args(kind)
    if raw is None and types.NoneType in members:
        return None
    exact = [m for m in members if m is type(raw)]
    candidates = exact or [m for m in members if m is not types.NoneType]
    return _build(candidates[0], raw, where)


def _build_object(kind: Any, raw: Any, where: str) -> Any:
    """Build a dataclass from an object, refusing missing and unknown members."""
    if not isinstance(raw, dict):
        raise BadRequest(f"{where} must be an object")
    members = _members_of(kind)
    unknown = sorted(raw.keys() - members.keys())
    if unknown:
        raise BadRequest(f"{where} has no member {unknown[0]!r}")
    values = {}
    for name, (hint, is_required) in members.items():
        if name in raw:
            values[name] = _build(hint, raw[name], f"{where}.{name}")
        elif is_required:
            raise BadRequest(f"{where} lacks {name!r}")
    return kind(**values)


@functools.cache
def _members_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """The annotation of each member of a dataclass, and whether an object must have it.

    Kept, since to evaluate annotations takes ten times as long as to build an object.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        spec.name: (hints[spec.name], spec.default is dataclasses.MISSING)
        for spec in dataclasses.fields(kind)
    }
