"""Weighted stacks for `go tool pprof` and the tools that read its files: pprof's protocol buffer.

Rules of this file: a pure function of its argument. The message is small and of few kinds, so that
it is written here: see `profile.proto` of pprof for the numbers of its fields.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....profiling import Samples

_PLACE = re.compile(r"^(?!thread \()(?P<name>.*?) \((?P<file>[^()]*?|/.*?)(?::(?P<line>\d+))?\)$")
"""A frame, as samples have them: its function, and where that is; of no thread, whose name may end
so, too."""
_NS = 1_000_000_000
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _TEXT, _DURATION, _PERIOD_TYPE, _PERIOD = (
    1, 2, 4, 5, 6, 10, 11, 12,
)  # fmt: skip


def render_pprof(samples: Samples) -> bytes:
    """The file, gzipped as pprof writes its own."""
    texts = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    places: dict[tuple[int, int], int] = {}

    def text(words: str) -> int:
        return texts.setdefault(words, len(texts))

    def place(frame: str) -> int:
        found = _PLACE.match(frame) if samples.unit == "samples" else None
        name, file, line = found.group("name", "file", "line") if found else (frame, "", None)
        function = functions.setdefault((name, file), len(functions) + 1)
        return places.setdefault((function, int(line or 0)), len(places) + 1)

    types = [("time", "nanoseconds")]
    if samples.hz:
        types = [("samples", "count"), *types]
    own = [_message(_SAMPLE_TYPE, _value_type(text(kind), text(unit))) for kind, unit in types]
    for frames, weight in samples.stacks:
        values = [weight, weight * _NS // samples.hz] if samples.hz else [weight]
        innermost_first = [place(frame) for frame in reversed(frames)]
        own.append(_message(_SAMPLE, _packed(1, innermost_first) + _packed(2, values)))
    for (function, line), number in places.items():
        own.append(_message(_LOCATION, _number(1, number) + _message(4, _line(function, line))))
    for (name, file), number in functions.items():
        said = _number(2, text(name)) + _number(3, text(name)) + _number(4, text(file))
        own.append(_message(_FUNCTION, _number(1, number) + said))
    own.append(_number(_DURATION, int(samples.seconds * _NS)))
    if samples.hz:
        own.append(_message(_PERIOD_TYPE, _value_type(text("time"), text("nanoseconds"))))
        own.append(_number(_PERIOD, _NS // samples.hz))
    own += [_message(_TEXT, words.encode("utf-8", "replace")) for words in texts]
    return gzip.compress(b"".join(own), mtime=0)


def _value_type(kind: int, unit: int) -> bytes:
    return _number(1, kind) + _number(2, unit)


def _line(function: int, line: int) -> bytes:
    return _number(1, function) + _number(2, line)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(map(_varint, values)))


def _varint(value: int) -> bytes:
    """A number that is not negative, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
