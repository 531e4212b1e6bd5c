"""How many samples and tokens a step was trained by.

Rules of this file: arithmetic only, no torch; used by the training thread, once per micro-batch.
"""

from __future__ import annotations

from .micro_batch_rows import MicroBatch


class Count:
    """Samples or tokens of a step: those of its micro-batches, added up.

    A loader's batch that the script cuts into pieces, a micro-batch each, is known by the second
    piece: it comes without a batch of its own, and both together are no more than that batch. Then
    the first was a piece, too, and so is that of each later batch.

    Attributes:
        sum: How many of the step so far; None where nothing is known.
        dropped: The same of passes whose gradients were thrown away.
    """

    def __init__(self) -> None:
        self._is_cut = False
        self._left = self._too_many = 0  # of the batch that was waited for last
        self.sum: int | None = None
        self.dropped: int | None = None

    def add(
        self, own: int | None, waited: int | None, called: int | None, *, has_wait: bool
    ) -> int | None:
        """A micro-batch has ended.

        Args:
            own: What it is taken for so far.
            waited: How many the batch has that was waited for in it.
            called: How many the model was called with.
            has_wait: Whether there was such a batch.

        Returns:
            How many it has.
        """
        surplus = 0
        if has_wait:
            self._left = self._too_many = 0
            if waited is not None and called is not None and 0 < called < waited:
                self._left = waited - called
                own = called if self._is_cut else own
                self._too_many = max(0, (own or 0) - called)
        elif called is not None and 0 < called <= self._left:
            self._is_cut = True
            self._left -= called
            surplus, self._too_many = self._too_many, 0
        else:
            self._left = 0
        if own is not None:
            before = self.sum or 0  # the first piece may have been of an earlier step
            self.sum = max(0, before - surplus) + own
        return own

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
        trains = not batch.losses
        for loss in batch.losses:
            trains |= loss.trains
        if not trains:  # none of its passes has made a gradient of what is trained
            return
        has_wait, waited, given = batch.has_wait, batch.waited, batch.given
        batch.samples = self.samples.add(batch.samples, waited[0], given[0], has_wait=has_wait)
        batch.tokens = self.tokens.add(batch.tokens, waited[1], given[1], has_wait=has_wait)

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
