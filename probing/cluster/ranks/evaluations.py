"""What the same code came to on each rank, equal results as one.

Rules of this file: pure. Results are equal when they print, give and raise the same; when they
ran and how long they took does not count. The odd ones come first.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...messages.common import EvalResult
from ...messages.frozen import dataclass
from .naming import Rank, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class SameResult:
    """Ranks on which the code came to the same.

    Attributes:
        result: The result of the first of them.
        steps: The steps at which it ran, in order; without the ranks that count none.
        is_odd: Whether most ranks came to something else, which is the same for all of them.
    """

    ranks: tuple[Rank, ...]
    result: EvalResult
    steps: tuple[int, ...] = ()
    is_odd: bool = False


def fold_results(results: Mapping[Rank, EvalResult]) -> tuple[SameResult, ...]:
    """The results, the fewest ranks first."""
    groups: dict[tuple[object, ...], list[Rank]] = {}
    for rank in in_order(results):
        groups.setdefault(_key(results[rank]), []).append(rank)
    ordered = sorted(groups.values(), key=len)
    has_most = len(ordered) > 1 and len(ordered[-1]) > len(ordered[-2])
    return tuple(
        SameResult(
            ranks=tuple(ranks),
            result=results[ranks[0]],
            steps=_steps([results[rank] for rank in ranks]),
            is_odd=has_most and ranks is not ordered[-1],
        )
        for ranks in ordered
    )


def _key(result: EvalResult) -> tuple[object, ...]:
    return (result.output, result.value, result.error, result.error_type, result.omitted_bytes)


def _steps(results: list[EvalResult]) -> tuple[int, ...]:
    return tuple(sorted({result.step for result in results if result.step is not None}))
