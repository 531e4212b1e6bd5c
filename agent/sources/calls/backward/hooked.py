"""A module whose backward pass is recorded, and its part of a pass that is under way.

Rules of this file: state only, of what records by Python; the C part has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Hook = Callable[[Any], None]


class Hooked:
    """A module whose backward pass is recorded.

    Attributes:
        ids: The numbers of its name, class and root class, as they stand in a row.
        path: Its name, told apart from those in other roots.
        inside: How the paths of all modules inside it begin.
        depth: In how many module calls its last call was nested.
        starts: The hooks of its outputs' nodes.
        ends: The hook of its input's node.
    """

    __slots__ = ("depth", "ends", "ids", "inside", "path", "starts")

    def __init__(self, ids: bytes, path: str) -> None:
        self.ids = ids
        self.path = path
        self.inside = f"{path}."
        self.depth = 0
        self.starts: dict[int, Hook] = {}
        self.ends: dict[int, Hook] = {}


class Open(NamedTuple):
    """A module whose backward pass is under way."""

    hooked: Hooked
    word: int
    at: int
    start_ns: int
