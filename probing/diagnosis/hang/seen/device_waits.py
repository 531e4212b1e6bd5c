"""Whether a thread waits for the accelerator: by the call that it stands in, and what that does.

Rules of this file: pure functions. A call such as `loss.item()` has no frame of its own, and CUDA
spins in it, so that the thread looks as if it computed. That it waits is said only where a device
is on record, and not of a thread that has gone on between two looks.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ....messages.common import Frame, ThreadStack
from ....stacks.waits import library_path
from ....units import percent
from ..evidence import Doing

WAITS_FOR_DEVICE = "waits for the device"
_LINE = re.compile(r"\.(item|cpu|tolist|numpy|synchronize)\(")
"""A line that waits for the GPU, where the tensor is on one: it then keeps a processor busy."""
_READS = frozenset({"item", "cpu", "tolist", "numpy", "synchronize"})
_COPIES = frozenset({"to", "cuda", "copy_"})
_NUMBERS = frozenset({"float", "int", "bool"})
_SHOWS = "torch/_tensor_str.py"
_BUSY, _IDLE = 0.9, 0.1
_OLD_S = 10.0
_LONGEST = 60
_MAY_WAIT = frozenset({"device", "python", "waiting", "lock", "unknown"})
"""What it looks like: a device that is waited for by an interrupt is waited for asleep."""


class _Call(NamedTuple):
    """What a thread is in; maybe only its line is known, which may make other calls, too."""

    text: str
    is_line: bool = False


def reads_device(frame: Frame) -> bool:
    """Whether a frame is in a call that gives numbers of a device to the host."""
    if frame.call is None:
        return _LINE.search(frame.line or "") is not None
    return _name(frame.call) in _READS


def with_device(
    doing: Doing, seen: ThreadStack | None, again: ThreadStack | None, sample: Mapping[str, Any]
) -> Doing:
    """What a thread does, of which it may be told that it waits for the device.

    Args:
        seen: The thread at the first look.
        again: The same at the second; None where there was none.
        sample: The newest row of python.devices.
    """
    if seen is None or seen.awaits is not None or doing.kind not in _MAY_WAIT or doing.holder:
        return doing
    if again is not None and not _is_same_place(seen, again):
        return doing
    busy = sample["busy"] if sample["age_s"] <= _OLD_S else None
    call = _waiting_call(seen, is_busy=busy is not None and busy >= _BUSY)
    if call is None or (busy is not None and busy < _IDLE) or "GPU" in doing.words:
        return doing
    is_sure = again is not None and busy is not None and not call.is_line
    others = (sample["processes"] or 0) - 1
    shared = f", {others} other process{'es' * (others > 1)} on it" if others > 0 else ""
    does = "" if busy is None else f" ({percent(busy, digits=0)} busy{shared})"
    works = f", which works or hangs{does}" if busy is not None and busy >= _BUSY else does
    begin = "" if is_sure else "most likely "
    return dataclasses.replace(
        doing, kind="device", words=f"{begin}{WAITS_FOR_DEVICE}{works}, in {call.text}"
    )


def _waiting_call(thread: ThreadStack, *, is_busy: bool) -> _Call | None:
    """The call by which a thread waits for the device; None where it does not.

    Args:
        is_busy: Whether the device has work; else only what gives numbers to the host counts.
    """
    frame = next((frame for frame in thread.frames if frame.kind == "python"), None)
    if frame is None:
        return None
    if any(library_path(one.file) == _SHOWS for one in thread.frames):
        return _Call("the print of a tensor")
    if frame.call is None:
        return _Call(_short(frame.line or ""), is_line=True) if reads_device(frame) else None
    waits = reads_device(frame) or (is_busy and _may_block(frame.call))
    return _Call(_short(frame.call)) if waits else None


def _may_block(call: str) -> bool:
    """Whether a call copies at once, or makes a number of what may be a tensor."""
    node = _parsed(call)
    if node is None:
        return False
    name, words = _name(call), {word.arg for word in node.keywords}
    if isinstance(node.func, ast.Name):
        return name in _NUMBERS and len(node.args) == 1
    return name in _COPIES and "non_blocking" not in words


def _name(call: str) -> str:
    """The last part of the name of what is called; empty where that has none."""
    node = _parsed(call)
    func = node.func if node is not None else None
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _parsed(call: str) -> ast.Call | None:
    try:
        node = ast.parse(call.lstrip("."), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return node if isinstance(node, ast.Call) else None


def _short(text: str) -> str:
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return f"`{text}`"


def _is_same_place(first: ThreadStack, second: ThreadStack) -> bool:
    """Whether a thread is where it was, down to the call where both looks tell that."""
    one, two = ([f for f in look.frames if f.kind == "python"] for look in (first, second))
    if [(f.file, f.lineno) for f in one] != [(f.file, f.lineno) for f in two]:
        return False
    calls = {frame.call for frame in (*one[:1], *two[:1])} - {None}
    return len(calls) < 2
