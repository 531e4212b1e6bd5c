"""Finds the symbols of a program or library in the memory of the process that runs it.

Rules of this file: reads what the loader has mapped, not the file, which may have been replaced
since or lie in another mount namespace. Nothing that is read is trusted: whatever is not a
64-bit ELF image ends in `CannotInject`, never in another error or an endless loop. Only the few
hundred bytes that a question needs are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from ..refusal import CannotInject

EXECUTABLE, WRITABLE = 1, 2
_IDENT = b"\x7fELF\x02\x01\x01"
"""An ELF file of 64 bits, little-endian, of the one version there is."""
_MACHINES = {62: "x86_64", 183: "aarch64"}
_LOAD, _DYNAMIC = 1, 2
_HASH, _STRTAB, _SYMTAB, _GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_FUNCTION = 2
_PLAIN_TYPES = frozenset({0, 1, _FUNCTION})
"""Symbols without a type, data, and functions: those whose value is where they lie."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAX_SEGMENTS = 128
_MAX_DYNAMIC = 4096
_MAX_CHAIN = 10_000

Read = Callable[[int, int], bytes]
"""Exactly that many bytes at an address; anything else is `CannotInject`."""


class Segment(NamedTuple):
    """A part of the file that the loader maps.

    Attributes:
        offset: Where it begins in the file.
        address: Where it belongs, before the image is moved.
        file_size: How many bytes of it come from the file; the rest is zero.
        memory_size: How long it is.
        flags: `WRITABLE` and `EXECUTABLE` among them.
    """

    offset: int
    address: int
    file_size: int
    memory_size: int
    flags: int


class _SymbolTables(NamedTuple):
    """Addresses of the tables that the dynamic section names; 0 where there is none."""

    symbols: int
    strings: int
    gnu_hash: int
    old_hash: int


class _Symbol(NamedTuple):
    """Where something lies, and whether it is a function."""

    address: int
    is_code: bool


class Image:
    """A program or library as it lies in memory.

    Attributes:
        machine: "x86_64" or "aarch64".
        segments: What the loader has mapped, in the order of the file.
        bias: How far the image was moved from where its file says.
    """

    def __init__(self, read: Read, base: int) -> None:
        """Read the head of the image whose first segment begins at `base`.

        Raises:
            CannotInject: It is not an ELF image for a processor that we know.
        """
        self._read = read
        ident, _, machine, _, _, phoff, _, _, _, phentsize, phnum, _, _, _ = _HEADER.unpack(
            read(base, _HEADER.size)
        )
        if not ident.startswith(_IDENT):
            raise CannotInject("its program is not a 64-bit ELF file")
        if machine not in _MACHINES:
            raise CannotInject(f"its processor (ELF machine {machine}) is not supported")
        self.machine = _MACHINES[machine]
        if phentsize != _PROGRAM_HEADER.size or not 0 < phnum <= _MAX_SEGMENTS:
            raise CannotInject("its ELF program headers make no sense")
        table = read(base + phoff, phnum * phentsize)
        headers = list(_PROGRAM_HEADER.iter_unpack(table))
        self.segments = tuple(
            Segment(offset, address, file_size, size, flags)
            for kind, flags, offset, address, _, file_size, size, _ in headers
            if kind == _LOAD
        )
        if not self.segments:
            raise CannotInject("its ELF file has nothing to load")
        first = min(self.segments, key=lambda segment: segment.address)
        self.bias = base - (first.address - first.offset)
        self._end = max(segment.address + segment.memory_size for segment in self.segments)
        self._dynamic = next((h[3] for h in headers if h[0] == _DYNAMIC), None)
        self._tables: _SymbolTables | None = None

    def address(self, name: str) -> int | None:
        """Where a symbol that the image offers to others lies; None when there is none.

        Raises:
            CannotInject: Its symbol tables make no sense.
        """
        if self._tables is None:
            self._tables = self._find_tables()
        tables = self._tables
        if not tables.symbols or not tables.strings:
            return None
        found = None
        if tables.gnu_hash:
            found = self._look_up_gnu(tables, name.encode())
        elif tables.old_hash:
            found = self._look_up_old(tables, name.encode())
        if found is not None and not self._is_inside(found):
            raise CannotInject(f"its ELF symbol {name} lies outside of what is loaded")
        return None if found is None else found.address

    def tails(self, page: int, kind: int = WRITABLE) -> list[tuple[int, int]]:
        """Begin and end of what is unused in the last page of each segment of a kind.

        Args:
            kind: `WRITABLE`, whose tails are zero, or `EXECUTABLE`, whose tails may hold what the
                file has there.
        """
        found = []
        for segment in self.segments:
            start = self.bias + segment.address + segment.memory_size
            start += -start % 16
            end = start + -start % page
            # Without zeroed variables at its end, what follows is whatever the file holds there.
            is_zeroed = segment.memory_size > segment.file_size or kind != WRITABLE
            others = (self.bias + other.address for other in self.segments)
            is_free = end > start and not any(start <= other < end for other in others)
            if segment.flags & kind and is_zeroed and is_free:
                found.append((start, end))
        return found

    def _find_tables(self) -> _SymbolTables:
        if self._dynamic is None:
            return _SymbolTables(0, 0, 0, 0)
        found: dict[int, int] = {}
        for index in range(_MAX_DYNAMIC):
            tag, value = struct.unpack(
                "<QQ", self._read(self.bias + self._dynamic + 16 * index, 16)
            )
            if tag == 0:
                break
            found.setdefault(tag, value)
        tags = (_SYMTAB, _STRTAB, _GNU_HASH, _HASH)
        return _SymbolTables(*(self._moved(found.get(tag, 0)) for tag in tags))

    def _moved(self, value: int) -> int:
        """A pointer of the dynamic section, which some loaders have already adjusted."""
        return value + self.bias if 0 < value < self._end else value

    def _is_inside(self, symbol: _Symbol) -> bool:
        """Whether a symbol lies in what the loader has mapped; a function where code lies."""
        at = symbol.address - self.bias
        return any(
            segment.address <= at < segment.address + segment.memory_size
            and (not symbol.is_code or segment.flags & EXECUTABLE)
            for segment in self.segments
        )

    def _look_up_gnu(self, tables: _SymbolTables, name: bytes) -> _Symbol | None:
        """Find a symbol by the GNU hash table."""
        read = self._read
        count, first, bloom_words, _ = struct.unpack("<4I", read(tables.gnu_hash, 16))
        if not count:
            return None
        buckets = tables.gnu_hash + 16 + 8 * bloom_words
        chains = buckets + 4 * count
        wanted = _gnu_hash(name)
        (index,) = struct.unpack("<I", read(buckets + 4 * (wanted % count), 4))
        if index < first:
            return None
        for number in range(index, index + _MAX_CHAIN):
            (found,) = struct.unpack("<I", read(chains + 4 * (number - first), 4))
            if found | 1 == wanted | 1:
                symbol = self._symbol(tables, number, name)
                if symbol is not None:
                    return symbol
            if found & 1:
                return None
        raise CannotInject("its ELF symbol table has no end")

    def _look_up_old(self, tables: _SymbolTables, name: bytes) -> _Symbol | None:
        """Find a symbol by the hash table of the System V standard."""
        read = self._read
        count, _ = struct.unpack("<2I", read(tables.old_hash, 8))
        if not count:
            return None
        chains = tables.old_hash + 8 + 4 * count
        at = tables.old_hash + 8 + 4 * (_old_hash(name) % count)
        for _ in range(_MAX_CHAIN):
            (number,) = struct.unpack("<I", read(at, 4))
            if number == 0:
                return None
            symbol = self._symbol(tables, number, name)
            if symbol is not None:
                return symbol
            at = chains + 4 * number
        raise CannotInject("its ELF symbol table has no end")

    def _symbol(self, tables: _SymbolTables, number: int, name: bytes) -> _Symbol | None:
        """One symbol, if it has that name and is more than a reference."""
        entry = self._read(tables.symbols + _SYMBOL.size * number, _SYMBOL.size)
        text, info, _, section, value, _ = _SYMBOL.unpack(entry)
        if not section or not value or info & 0xF not in _PLAIN_TYPES:
            return None
        if self._read(tables.strings + text, len(name) + 1) != name + b"\0":
            return None
        return _Symbol(int(self.bias + value), is_code=info & 0xF == _FUNCTION)


def _gnu_hash(name: bytes) -> int:
    """The hash of ``DT_GNU_HASH``."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFF_FFFF
    return value


def _old_hash(name: bytes) -> int:
    """The hash of ``DT_HASH``."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFF_FFFF
    return value
