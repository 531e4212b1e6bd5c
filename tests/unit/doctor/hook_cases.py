"""Answers about hooks that pile up on a module, and about hooks that are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .made import Facts, facts, steps
from .records import Case


def _hooked(*hooks: int, objects: Callable[[int], int] = lambda _: 1) -> Facts:
    """A module with so many hooks of one function at each look: twice at first, then later."""
    base = {"model": "net", "module": "layers.0", "place": "forward_hooks", "function": "keep",
            "file": "/job/train.py", "lineno": 7}  # fmt: skip
    looks = iter((hooks[0], hooks[0], hooks[-1]))

    def rows() -> list[dict[str, Any]]:
        number = next(looks)
        once = {**base, "module": "head", "function": "log", "hooks": 1, "objects": 1}
        return [once, {**base, "hooks": number, "objects": objects(number)}] if number else [once]

    return facts({"steps": steps(101)}, {"hooks": rows}, pace=8)


HOOKED = (
    Case("piled-hooks", lambda: _hooked(100, 116), "likely", 8, "keep (train.py:7) hangs 100 times"
         " on module layers.0 of net"),
    Case("piled-hooks", lambda: _hooked(20, 28, objects=int), "likely"),  # closures
    Case("piled-hooks", lambda: _hooked(12), "likely", None, "as many 16 steps later"),  # an epoch
    Case("piled-hooks", lambda: _hooked(12, objects=int), None),  # one for each of 12 names
    Case("piled-hooks", lambda: _hooked(5), None),
    Case("piled-hooks", lambda: _hooked(12, 1), None),  # removed at the end of an epoch
    Case("piled-hooks", lambda: _hooked(1, 9), None),
    Case("piled-hooks", lambda: _hooked(0), None),
)  # fmt: skip
