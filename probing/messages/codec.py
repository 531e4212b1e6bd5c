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


def encode_request(value: Any) -> bytes:
    """The same of a question, without what it does not ask for.

    A process that an earlier version of probing runs in does not know all that can be asked for
    now, and answers what it knows.
    """
    return json.dumps(value, default=_asked, separators=(",", ":")).encode()


def _asked(value: Any) -> dict[str, Any]:
    """The members of a dataclass that are not empty by default."""
    return {
        spec.name: member
        for spec in dataclasses.fields(value)
        if (member := getattr(value, spec.name)) or member != spec.default
    }


def _plain(value: Any) -> dict[str, Any]:
    """The members of a dataclass; `dataclasses.asdict` would copy all that is in them, too."""
    return {spec.name: getattr(value, spec.name) for spec in dataclasses.fields(value)}


def decode(cls: type[T], data: bytes | str) -> T:
    """The object of class `cls` that `encode` made these bytes from, maybe of a later version.

    Members that are not known yet are passed over.

    Raises:
        BadRequest: The bytes are no such object.
    """
    return _decode(cls, data, is_request=False)


def decode_request(cls: type[T], data: bytes | str) -> T:
    """The same of a question: what is not known is refused, and numbers are finite.

    No time that is none is waited for, and nothing is done by half.

    Raises:
        BadRequest: The bytes are no such object.
    """
    return _decode(cls, data, is_request=True)


def _decode(cls: type[T], data: bytes | str, *, is_request: bool) -> T:
    try:
        raw = json.loads(data, **(_FINITE if is_request else {}))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON ({error})") from None
    value: T = _build(cls, raw, cls.__name__, is_request=is_request)
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


def _build(kind: Any, raw: Any, where: str, *, is_request: bool) -> Any:
    """Check `raw` against a type annotation and build what it describes."""
    origin = typing.get_origin(kind)
    if origin in {types.UnionType, typing.Union}:
        return _build_union(kind, raw, where, is_request=is_request)
    if origin is Annotated:
        value = _build(float, raw, where, is_request=is_request)
        if value <= 0:
            raise BadRequest(f"{where} must be {typing.get_args(kind)[1]}")
        return value
    if origin is tuple:
        if not isinstance(raw, list):
            raise BadRequest(f"{where} must be a list")
        item = typing.get_args(kind)[0]
        return tuple(
            [
                _build(item, entry, f"{where}[{i}]", is_request=is_request)
                for i, entry in enumerate(raw)
            ]
        )
    if dataclasses.is_dataclass(kind):
        return _build_object(kind, raw, where, is_request=is_request)
    if kind is float and type(raw) is int:
        try:
            return float(raw)
        except OverflowError:
            raise BadRequest(f"{where} is too large") from None
    if type(raw) is not kind:
        raise BadRequest(f"{where} must be {kind.__name__}")
    return raw


def _build_union(kind: Any, raw: Any, where: str, *, is_request: bool) -> Any:
    """Build the first member of a union that fits."""
    members = typing.get_args(kind)
    if raw is None and types.NoneType in members:
        return None
    exact = [m for m in members if m is type(raw)]
    candidates = exact or [m for m in members if m is not types.NoneType]
    return _build(candidates[0], raw, where, is_request=is_request)


def _build_object(kind: Any, raw: Any, where: str, *, is_request: bool) -> Any:
    """Build a dataclass from an object, refusing missing members, and unknown ones of a request."""
    if not isinstance(raw, dict):
        raise BadRequest(f"{where} must be an object")
    members = _members_of(kind)
    unknown = sorted(raw.keys() - members.keys())
    if unknown and is_request:
        raise BadRequest(f"{where} has no member {unknown[0]!r}")
    values = {}
    for name, (hint, is_required) in members.items():
        if name in raw:
            values[name] = _build(hint, raw[name], f"{where}.{name}", is_request=is_request)
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
