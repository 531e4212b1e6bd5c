"""Which object a frame is about to take, and which it holds, by its bytecode.

Rules of this file: reads code objects and runs none. What Python does at an instruction is certain,
where a source file may have changed since; what an object is reached by is told only where that is
a name with attributes behind it, and still leads to it. The names of instructions are those of
Python 3.10 to 3.14.
"""

from __future__ import annotations

import bisect
import dis
import functools
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

_MOST_CODE = 1 << 16
"""Bytes of a function beyond which it is not read: that would take too long."""
_LOCALS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLASSDEREF"}
)
_NAMES = _LOCALS | {"LOAD_NAME", "LOAD_GLOBAL"}
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_ARGUMENTS = _NAMES | _ATTRIBUTES | {"LOAD_CONST", "LOAD_SMALL_INT", "KW_NAMES", "PRECALL"}
"""What may stand between a method and its call."""
_MOST_ARGUMENTS = 12
_ENTERS = frozenset({"BEFORE_WITH", "SETUP_WITH"})
_ENTERS_LATER = "BEFORE_ASYNC_WITH"
_TAKES, _GIVES_BACK = frozenset({"acquire", "__enter__"}), frozenset({"release"})
_SPECIAL_ENTER, _SPECIAL_ENTER_LATER = 0, 2
_BEFORE_SPECIAL = 5
"""From Python 3.14 on: COPY, LOAD_SPECIAL __exit__, two SWAPs, LOAD_SPECIAL __enter__; or __aexit__
and __aenter__."""
_ENDS = frozenset({"RETURN_VALUE", "RERAISE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_ABSOLUTE"})
_MOST_CLEANUP = 40
_SETS = ("STORE_", "DELETE_")
_SETS_FIRST = "STORE_FAST_LOAD_FAST"
_MOST_CACHE = 22
"""Bytes of an instruction with its cache, at most."""


class Expression(NamedTuple):
    """How code reaches an object: a name, and attributes behind it."""

    root: str
    path: tuple[str, ...]
    is_global: bool

    def __str__(self) -> str:
        """As it is written."""
        return ".".join((self.root, *self.path))


class Taken(NamedTuple):
    """An object that a frame has taken and not given back.

    Attributes:
        is_certain: Whether that is by a ``with``; else it is by a call before a ``try`` that gives
            it back in the end.
    """

    expression: Expression
    lineno: int
    is_certain: bool


class _Block(NamedTuple):
    """A ``with`` or ``try`` that is not over: where it begins, and what handles its errors."""

    start: int
    handler: int


class CodeReader:
    """The instructions of one function."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        is_short = len(code.co_code) <= _MOST_CODE
        self._all = list[dis.Instruction]()
        self._index: dict[int, int] = {}
        for instruction in dis.get_instructions(code) if is_short else ():
            self._index[instruction.offset] = len(self._all)
            if instruction.opname != "EXTENDED_ARG":  # a part of the next one, to which jumps lead
                self._all.append(instruction)

    @functools.cached_property
    def _entries(self) -> list[Any] | None:
        """Which handler is for which instructions; None before Python 3.11, which has no table."""
        parse = getattr(dis, "_parse_exception_table", None)
        return None if parse is None else parse(self._code)

    @functools.cached_property
    def _begins(self) -> dict[int, int]:
        """Where the first instruction of each handler's block is."""
        return {entry.target: entry.start for entry in reversed(self._entries or ())}

    @functools.cached_property
    def _within(self) -> dict[int, list[range]]:
        """The offsets in the block of each handler, those of further blocks inside it included."""
        found: dict[int, list[range]] = {}
        for entry in self._entries or ():
            for handler in {block.handler for block in self._blocks(entry.start)}:
                found.setdefault(handler, []).append(range(entry.start, entry.end, 2))
        return found

    def awaited(self, lasti: int, methods: frozenset[str] = _TAKES) -> Expression | None:
        """What is taken by the instruction at an offset; None where it takes nothing.

        Args:
            methods: By a call of which methods it is taken, where it is by none of entering it.
        """
        at = self._at(lasti)
        if at is None:
            return None
        if self._all[at].opname in _ENTERS:
            return self._expression(at - 1)
        if not self._all[at].opname.startswith(("CALL", "PRECALL")):
            return None
        if self._is_special(at - 1, _SPECIAL_ENTER):
            return self._expression(at - 1 - _BEFORE_SPECIAL)
        method = self._method_of(at, methods)
        return None if method is None else self._expression(method - 1)

    def _at(self, lasti: int) -> int | None:
        """The instruction at an offset, or whose cache is there, as that of a call often is."""
        offsets = range(lasti, lasti - _MOST_CACHE, -2)
        return next((at for o in offsets if (at := self._index.get(o)) is not None), None)

    def having(self, methods: frozenset[str]) -> Iterator[tuple[str, Expression, int]]:
        """The methods of these names that the function reaches, with their object and line."""
        for at, instruction in enumerate(self._all):
            if instruction.opname in _ATTRIBUTES and instruction.argval in methods:
                expression = self._expression(at - 1)
                if expression is not None:
                    yield instruction.argval, expression, self._line(at)

    def taken(self, lasti: int) -> Iterator[Taken]:
        """What has been taken and not given back by the time the instruction at an offset runs.

        Not what cannot be told by now: where its block lends it, or may lead to another object.
        """
        for block in self._blocks(lasti):
            handler = self._index.get(block.handler)
            if handler is None:
                continue
            names = [instruction.opname for instruction in self._all[handler : handler + 2]]
            found = (
                self._entered(block)
                if "WITH_EXCEPT_START" in names
                else self._released_at(handler, block)
            )
            if found is not None and not self._is_other(found.expression, block):
                yield found

    def lent(self, lasti: int) -> list[Expression]:
        """What it has given back by then, and not before that taken itself: its callers had."""
        found: dict[Expression, list[bool]] = {}
        for at in range(self._at(lasti) or 0):
            given = self._called(at, _GIVES_BACK)
            for expression in given or self._called(at, _TAKES):
                found.setdefault(expression, []).append(bool(given))
        awaited = self.awaited(lasti)
        return [one for one, gives in found.items() if gives[0] and (gives[-1] or one == awaited)]

    def _is_other(self, expression: Expression, block: _Block) -> bool:
        """Whether a block gives an object back itself, or sets what its expression consists of."""
        for at in self._inside(block):
            name, value = self._all[at].opname, self._all[at].argval
            if name.startswith(_SETS):
                values = value if type(value) is tuple else (value,)
                values = values[:1] if name == _SETS_FIRST else values
                parts = expression.path if name.endswith("_ATTR") else (expression.root,)
                if not set(parts).isdisjoint(values):
                    return True
            if expression in self._called(at, _GIVES_BACK):
                return True
        return False

    def _inside(self, block: _Block) -> Iterator[int]:
        """The instructions in a block, those of further blocks inside it included."""
        if self._entries is None:
            flow = self._blocks_by_flow
            yield from (self._index[o] for o, blocks in flow.items() if block in blocks)
            return
        for offsets in self._within.get(block.handler, ()):
            yield from (self._index[offset] for offset in offsets if offset in self._index)

    def _entered(self, block: _Block) -> Taken | None:
        """What a ``with`` has entered: by the last instruction before its block that enters."""
        for at in range(self._index.get(block.start, 0), -1, -1):
            name = self._all[at].opname
            is_special = self._is_special(at, _SPECIAL_ENTER, _SPECIAL_ENTER_LATER)
            if name in _ENTERS or name == _ENTERS_LATER or is_special:
                expression = self._expression(at - (_BEFORE_SPECIAL if is_special else 1))
                return expression and Taken(expression, self._line(at), is_certain=True)
        return None

    def _released_at(self, handler: int, block: _Block) -> Taken | None:
        """What the ``finally`` of a ``try`` releases, and a call before it has acquired."""
        released = set[Expression]()
        for at in range(handler, min(handler + _MOST_CLEANUP, len(self._all))):
            if self._all[at].opname == "RERAISE":
                break
            released |= self._called(at, _GIVES_BACK)
        for at in range(self._index.get(block.start, 0), -1, -1):
            for expression in self._called(at, _TAKES) & released:
                return Taken(expression, self._line(at), is_certain=False)
        return None

    def _called(self, at: int, methods: frozenset[str]) -> set[Expression]:
        """The object one of whose methods is called without arguments at an instruction."""
        if not self._all[at].opname.startswith("CALL") or self._all[at].arg != 0:
            return set()
        method = self._method_of(at, methods)
        expression = None if method is None else self._expression(method - 1)
        return set() if expression is None else {expression}

    def _method_of(self, call: int, methods: frozenset[str]) -> int | None:
        """Where a call has its method from; None where it is none of these."""
        for at in range(call - 1, max(-1, call - 1 - _MOST_ARGUMENTS), -1):
            instruction = self._all[at]
            if instruction.opname in _ATTRIBUTES and instruction.argval in methods:
                return at
            if instruction.opname not in _ARGUMENTS:
                return None
        return None

    def _expression(self, end: int) -> Expression | None:
        """The expression whose last instruction is that one; None where it is another kind."""
        path: list[str] = []
        while end >= 0 and self._all[end].opname in _ATTRIBUTES:
            path.insert(0, self._all[end].argval)
            end -= 1
        if end < 0 or self._all[end].opname not in _NAMES:
            return None
        root: Any = self._all[end].argval
        return Expression(root, tuple(path), self._all[end].opname == "LOAD_GLOBAL")

    def _is_special(self, at: int, *which: int) -> bool:
        instruction = self._all[at] if at >= 0 else None
        is_special = instruction is not None and instruction.opname == "LOAD_SPECIAL"
        return is_special and instruction is not None and instruction.arg in which

    def _line(self, at: int) -> int:
        offset = self._all[at].offset
        lines = (line for start, end, line in self._code.co_lines() if start <= offset < end)
        return next(lines, None) or 0

    def _blocks(self, lasti: int) -> list[_Block]:
        """The blocks that an offset is in, the innermost first."""
        entries = self._entries
        if entries is None:
            return self._blocks_by_flow.get(lasti, [])
        found = list[_Block]()
        offset = lasti
        for _ in entries:  # which are sorted, and do not overlap
            place = bisect.bisect_right(entries, offset, key=lambda entry: entry.start) - 1
            if place < 0 or offset >= entries[place].end:
                break
            offset = entries[place].target
            found.append(_Block(self._begins[offset], offset))
        return found

    @functools.cached_property
    def _blocks_by_flow(self) -> dict[int, list[_Block]]:
        """The same of every offset before Python 3.11, where blocks are opened and closed."""
        found: dict[int, list[_Block]] = {}
        left: list[tuple[int, list[_Block]]] = [(0, [])]
        while left:
            at, blocks = left.pop()
            while at < len(self._all) and self._all[at].offset not in found:
                instruction = self._all[at]
                found[instruction.offset] = blocks
                name, target = instruction.opname, instruction.argval
                if name.startswith("SETUP_") and instruction.opcode in dis.hasjrel:
                    left.append((self._index[target], [_Block(0, -1), *blocks]))
                    blocks = [_Block(instruction.offset, target), *blocks]
                elif name in {"POP_BLOCK", "POP_EXCEPT"}:
                    blocks = blocks[1:]
                elif instruction.opcode in {*dis.hasjrel, *dis.hasjabs}:
                    left.append((self._index[target], blocks))
                if name in _ENDS:
                    break
                at += 1
        return found


class CodeReaders:
    """The readers of functions, each made once."""

    def __init__(self) -> None:
        self._known: dict[CodeType, CodeReader] = {}

    def of(self, frame: FrameType) -> CodeReader:
        """That of the function which a frame runs."""
        if frame.f_code not in self._known:
            self._known[frame.f_code] = CodeReader(frame.f_code)
        return self._known[frame.f_code]
