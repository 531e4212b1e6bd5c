"""Counts the operations of functions that a module calls by itself, such as fused attention.

Rules of this file: stands in for functions of torch while one call of a root is observed, and only
then; looks at shapes, touches no data. What a script has imported by name before, and what is
written as an operator (`@`), goes by unseen, so that such a count is a lower bound.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from ....safety.guard import Guard
from ..stand_in import StandIn

Count = Callable[[tuple[Any, ...]], int]
Tell = Callable[[int], None]


class FunctionFlops:
    """What stands in for functions, from `start` to `stop`."""

    def __init__(self, tell: Tell) -> None:
        """Prepare.

        Args:
            tell: Called with the operations of each call, in the thread that makes it.
        """
        torch: Any = sys.modules["torch"]
        self.guard = Guard("shapes of functions", self.stop)
        self._tell = tell
        owners = {"torch": torch, "functional": torch.nn.functional}
        self._stand_ins = [
            StandIn(owners[owner], name, self._around(count))
            for owner, names, count in _FUNCTIONS
            for name in names.split()
        ]

    def start(self) -> None:
        """Stand in."""
        for stand_in in self._stand_ins:
            stand_in.start()

    def stop(self) -> None:
        """Put the functions back."""
        for stand_in in self._stand_ins:
            stand_in.stop()

    def _around(self, count: Count) -> Callable[..., Any]:
        """What is called in the place of a function."""

        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self.guard.run(self._note, count, (*args, *kwargs.values()))
            return result

        return around

    def _note(self, count: Count, given: tuple[Any, ...]) -> None:
        self._tell(count(given))


def attention(given: tuple[Any, ...]) -> int:
    """Two products: of queries and keys, and of what comes of that and values.

    As `sdpa_flop_count` of torch.utils.flop_counter; a mask saves nothing in it.
    """
    query, key, value = (tuple(tensor.shape) for tensor in given[:3])
    places = math.prod(query[:-1]) * key[-2]
    return int(2 * places * (query[-1] + value[-1]))


def product(given: tuple[Any, ...]) -> int:
    """A matrix product, of the last two tensors where there are three: 2 per multiplication."""
    one, other = (tuple(tensor.shape) for tensor in given[-2:])
    columns = other[-1] if len(other) > 1 else 1
    batch = other[:-2] if len(one) <= 2 < len(other) else ()
    return int(2 * math.prod(batch) * math.prod(one) * columns)


def linear(given: tuple[Any, ...]) -> int:
    """As `linear` of `flops`."""
    x, weight = (tuple(tensor.shape) for tensor in given[:2])
    return int(2 * math.prod(x[:-1]) * math.prod(weight))


_FUNCTIONS: tuple[tuple[str, str, Count], ...] = (
    ("functional", "scaled_dot_product_attention", attention),
    ("functional", "linear", linear),
    ("torch", "matmul bmm mm", lambda given: product(given[:2])),
    ("torch", "baddbmm addmm", lambda given: product(given[1:3])),
)
