"""By how much memory in use is larger behind a backward pass than before it: usual, or too much.

Rules of this file: runs at the operator's side. A backward pass gives back what the forward pass
saved and leaves gradients: it may add as much as those take, and no more. Only an accelerator's
allocator counts so exactly; the resident set also has what libc keeps, and is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...messages.frozen import dataclass
from ..advice import Advice

Row = Mapping[str, Any]

_PART, _LEAST = 0.1, 32 << 20
"""By which part of what was there before, and by how many bytes at least, a pass must add more
than its gradients take to be called excessive."""
QUERY = """
WITH passes AS (
  SELECT device, step, micro_batch,
    max(coalesce(allocated_bytes, resident_bytes))
      FILTER (WHERE phase = 'after_forward') AS before,
    max(coalesce(allocated_bytes, resident_bytes))
      FILTER (WHERE phase = 'after_backward') AS after,
    bool_and(allocated_bytes IS NOT NULL) AS is_exact
  FROM python.memory WHERE phase IN ('after_forward', 'after_backward')
  GROUP BY device, step, micro_batch
), newest AS (
  SELECT * FROM passes WHERE before IS NOT NULL AND after IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY device ORDER BY step DESC, micro_batch DESC) <= 200
)
SELECT device, count(*) AS passes, median(before) AS before, median(after - before) AS growth,
  max(after - before) AS most, bool_and(is_exact) AS is_exact
FROM newest GROUP BY device"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardGrowth:
    """The change of one device's memory in use over a backward pass, a median of the newest.

    Attributes:
        passes: How many were looked at.
        before_bytes: In use before one, with what the forward pass has saved.
        growth_bytes: By how much more behind it; negative where it gives back more than it leaves.
        most_bytes: The largest such change.
        gradients_bytes: What all gradients take; None where that was not seen.
        is_excessive: Whether it adds more than its gradients; None where that is not judged.
    """

    device: str
    passes: int
    before_bytes: int
    growth_bytes: int
    most_bytes: int
    gradients_bytes: int | None
    is_excessive: bool | None


def growth_of(rows: Sequence[Row], gradients: Mapping[str, int]) -> tuple[BackwardGrowth, ...]:
    """What the answer to `QUERY` says.

    Args:
        gradients: By device: what all gradients take.
    """
    return tuple(_growth(row, gradients.get(row["device"])) for row in rows)


def _growth(row: Row, gradients: int | None) -> BackwardGrowth:
    before, growth = round(row["before"]), round(row["growth"])
    is_judged = bool(row["is_exact"]) and gradients is not None
    margin = max(_LEAST, _PART * before)
    return BackwardGrowth(
        device=row["device"],
        passes=row["passes"],
        before_bytes=before,
        growth_bytes=growth,
        most_bytes=row["most"],
        gradients_bytes=gradients,
        is_excessive=growth > (gradients or 0) + margin if is_judged else None,
    )


def advise_on_growth(growths: tuple[BackwardGrowth, ...]) -> Iterator[Advice]:
    """What to do about backward passes that keep more than gradients."""
    for one in growths:
        if one.is_excessive:
            excess = one.growth_bytes - (one.gradients_bytes or 0)
            yield Advice(
                rule="backward",
                action="Find what the backward pass keeps beside gradients: `probing PID leak --by"
                " phase`. Often retain_graph=True, create_graph=True, or hooks that collect"
                " gradients in a list.",
                evidence=f"a backward pass on {one.device} adds {excess:,} bytes beyond the"
                f" gradients, the median of {one.passes}",
            )
