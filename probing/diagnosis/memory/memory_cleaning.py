"""Has memory cleaned up in a process, and says what that has freed.

Rules of this file: runs at the operator's side; the work is done by the training itself, at the end
of a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ArmRefused
from ...messages.common import CLEAN
from ...messages.frozen import dataclass
from ...messages.limits import WAIT_S
from ..arming import arm_and_wait

if TYPE_CHECKING:
    from ...client.base import Process

Row = Mapping[str, Any]

_ROWS = (
    "FROM python.memory WHERE phase = 'mark' AND label IN ('before {0}', 'after {0}') ORDER BY seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What cleaning up came to.

    Attributes:
        before: The row of python.memory right before it.
        after: That right after.
        garbage: How many objects garbage was made of; None where it was not collected.
        notes: What the reader should know.
    """

    before: Row
    after: Row
    garbage: int | None
    notes: tuple[str, ...]

    def freed(self, column: str) -> int | None:
        """How much less there is in a column of bytes; None where it was not measured."""
        before, after = self.before[column], self.after[column]
        return None if before is None or after is None else before - after


def clean_memory(
    process: Process, wanted: Sequence[str], *, timeout_s: float | None = None
) -> Cleaned:
    """Clean up at the end of the step in progress.

    Args:
        wanted: Fields of `marks.Cleaning`.
        timeout_s: How long the end of the step may be waited for.

    Raises:
        ProbingError: No step ends in time, or memory is not recorded there.
    """
    armed = arm_and_wait(
        process, CLEAN, 1, timeout_s=WAIT_S if timeout_s is None else timeout_s,
        cleaning=tuple(wanted),
    )  # fmt: skip
    rows = process.query(_ROWS.format(" ".join(wanted))).to_pylist()[-2:]
    if armed.state == "failed" or not armed.done or len(rows) < 2:
        reason = armed.reason or "it was called off before the step ended"
        raise ArmRefused(reason, help="")
    garbage = armed.found if "gc" in wanted else None
    return Cleaned(before=rows[0], after=rows[1], garbage=garbage, notes=armed.notes)
