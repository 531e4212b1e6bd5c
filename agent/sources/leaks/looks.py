"""What the reader of a watch should know of its looks at the memory.

Rules of this file: sentences only, made of figures.
"""

from __future__ import annotations

from typing import NamedTuple


class Looks(NamedTuple):
    """What held for the looks.

    Attributes:
        held_ns: For how long the training was held at most for one of them.
        nodes: How many nodes of autograd's graphs there was time for; None where for all.
        left_out: How many tensors without a purpose there was no time for, at most.
        blind: In how many of them gradients could not be told from other tensors.
    """

    held_ns: int
    nodes: int | None
    left_out: int
    blind: int

    def told(self, number: int) -> tuple[str, ...]:
        """It in sentences.

        Args:
            number: How many there were.
        """
        notes = [f"the training was held for at most {self.held_ns * 1e-6:.0f} ms at a time"]
        if self.nodes is not None:
            notes.append(
                f"the {self.nodes:,} newest nodes of autograd's graphs were looked at, for want of"
                " time: what older graphs keep is counted as other, or not at all"
            )
        if self.left_out:
            notes.append(
                f"{self.left_out:,} tensors of category other, the oldest, were left out of all"
                " looks, for want of time: what grew is more where their memory did, less where"
                " some went"
            )
        if self.blind:
            notes.append(
                f"in {self.blind} of {number} looks gradients were not told from other tensors:"
                " several threads train, and others were at work on theirs"
            )
        return (*notes,)
