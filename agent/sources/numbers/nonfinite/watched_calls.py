"""A call of a watched module: what is known of its values, and of their gradients.

Rules of this file: state only; what it means, `numerics` and `gradient_origin` decide.
"""

from __future__ import annotations

from typing import Any

from .finite import Bad
from .finite_hooks import Watched


class WatchedCall:
    """A call of a watched module.

    Attributes:
        is_clean: Whether all that it was given is finite.
        is_told: Whether values of it, or of a call inside it, were found not to be.
        grad_out: What is wrong with the gradient of an output.
        grad_in: What is wrong with that of an input.
        has_out: Whether a gradient of an output has come.
        order: When the first wrong gradient came.
        place: Where in the graph that input comes from: several calls may have been given it.
    """

    __slots__ = (
        "given",
        "grad_in",
        "grad_out",
        "has_out",
        "is_clean",
        "is_told",
        "order",
        "parent",
        "place",
        "shapes",
        "watched",
    )

    def __init__(self, watched: Watched, parent: WatchedCall | None) -> None:
        self.watched = watched
        self.parent = parent
        self.is_clean = True
        self.is_told = False
        self.given: list[tuple[str, Any]] = []
        self.shapes = ""
        self.grad_in: Bad | None = None
        self.grad_out: Bad | None = None
        self.has_out = False
        self.order = 0
        self.place: tuple[int, int] | None = None

    def around(self) -> list[WatchedCall]:
        """The calls around it, from the inside."""
        found: list[WatchedCall] = []
        outer = self.parent
        while outer is not None:
            found.append(outer)
            outer = outer.parent
        return found
