"""How many samples and tokens a step was trained by.

Rules of this file: arithmetic only, no torch; used by the training thread, once per micro-batch.
"""

from __future__ import annotations

from .micro_batch_rows import MicroBatch


class Count:
    """Samples or tokens of a step: those of its micro-batches, added up.

    Attributes:
        sum: How many of the step so far; None where nothing is known.
        dropped: The same of passes whose gradients were thrown away.
    """

    __slots__ = ("dropped", "sum")

    def __init__(self) -> None:
        self.sum: int | None = None
        self.dropped: int | None = None

    def drop(self) -> None:
        """The gradients of all passes of the step so far were thrown away."""
        if self.sum is not None:
            self.dropped, self.sum = (self.dropped or 0) + self.sum, None

    def keep(self) -> None:
        """They were used after all."""
        if self.dropped is not None:
            self.sum, self.dropped = (self.sum or 0) + self.dropped, None


class StepSamples:
    """Both of the step in progress."""

    def __init__(self) -> None:
        self.samples, self.tokens = Count(), Count()
        self._both = (self.samples, self.tokens)

    def begin(self) -> None:
        """A step begins."""
        samples, tokens = self._both
        samples.sum = samples.dropped = tokens.sum = tokens.dropped = None

    def batch_ended(self, batch: MicroBatch) -> None:
        """A micro-batch has ended: how large is it, and how large the step so far?"""
        batch.settle()
        for loss in batch.losses:
            if loss.trains:
                break
        else:
            if batch.losses:  # none of its passes has made a gradient of what is trained
                return
        if batch.samples is not None:
            self.samples.sum = (self.samples.sum or 0) + batch.samples
        if batch.tokens is not None:
            self.tokens.sum = (self.tokens.sum or 0) + batch.tokens

    def told(self) -> tuple[int | None, int | None]:
        """How many of the step so far; None where nothing is known."""
        samples, tokens = self._both
        return (
            samples.dropped if samples.sum is None else samples.sum,
            tokens.dropped if tokens.sum is None else tokens.sum,
        )

    def drop(self) -> None:
        """The gradients of all passes of the step so far were thrown away."""
        for count in self._both:
            count.drop()

    def keep(self) -> None:
        """They were used after all."""
        for count in self._both:
            count.keep()
