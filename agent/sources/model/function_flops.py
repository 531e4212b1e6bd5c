"""Counts the operations of functions that a module calls by itself, such as fused attention.

Rules of this file: stands in for functions of torch while one call of a root is observed, and only
then; looks at shapes, touches no data. What a script has imported by name before, and products that
are written in another way, go by unseen, so that such a count is a lower bound.
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
        owners = {"torch": torch, "functional": torch.nn.functional, "Tensor": torch.Tensor}
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

        def around(original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
            result = original(*args, **kwargs)
            self.guard.run(self._note, count, (*args, *kwargs.values()))
            return result

        return around

    def _note(self, count: Count, given: tuple[object, ...]) -> None:
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


def einsum(given: tuple[Any, ...]) -> int:
    """The product of two tensors, of what is left of each without what only it sums over.

    As torch does it, and its counter counts it. What multiplies and does not add is none, and that
    of more tensors, whose order torch chooses, or by numbers in the place of letters, is left out.
    """
    equation, *tensors = given
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = list(tensors[0])
    if type(equation) is not str or len(tensors) != 2:
        return 0
    terms, arrow, result = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    letters = []
    for term, tensor in zip(terms.split(","), tensors, strict=True):
        shape = tuple(tensor.shape)
        found = _letters(term, len(shape))
        letters.append(set(found))
        for letter, size in zip(found, shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    one, other = letters
    kept = set(result) & set(sizes) if arrow else one ^ other
    kept |= {letter for letter in sizes if letter.isdigit()}
    summed = (one & other) - kept
    return 2 * math.prod(sizes[letter] for letter in summed | kept) if summed else 0


def _letters(term: str, dimensions: int) -> list[str]:
    """The letters of a term, with numbers, counted from the last, for those of an ellipsis."""
    before, dots, behind = term.partition("...")
    more = dimensions - len(before) - len(behind) if dots else 0
    return [*before, *(str(more - place) for place in range(more)), *behind]


_FUNCTIONS: tuple[tuple[str, str, Count], ...] = (
    ("functional", "scaled_dot_product_attention", attention),
    ("functional", "linear", linear),
    ("torch", "matmul bmm mm", lambda given: product(given[:2])),
    ("torch", "baddbmm addmm", lambda given: product(given[1:3])),
    ("torch", "einsum", einsum),
    ("Tensor", "__matmul__ matmul bmm mm", lambda given: product(given[:2])),
    ("Tensor", "baddbmm addmm", lambda given: product(given[1:3])),
)
