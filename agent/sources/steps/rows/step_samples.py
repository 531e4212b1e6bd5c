"""How many samples and tokens a step was trained by.

Rules of this file: arithmetic only, no torch; used by the training thread, once per micro-batch.
"""

from __future__ import annotations

from typing import NamedTuple

from .micro_batch_rows import MicroBatch


class Sizes(NamedTuple):
    """What is known of how large a micro-batch is.

    Attributes:
        own: What it is taken for so far.
        has_wait: Whether a batch was waited for in it.
        waited: How many that has.
        called: How many the model was called with.
    """

    own: int | None
    has_wait: bool
    waited: int | None
    called: int | None


class Count:
    """Samples or tokens of a step: those of its micro-batches, added up.

    A loader's batch that the script cuts into pieces, a micro-batch each, is known by the second
    piece: it comes without a batch of its own, and both together are no more than that batch. Then
    the first was a piece, too, and so is that of each later batch.
    """

    def __init__(self) -> None:
        self._is_cut = False
        self._left = self._too_many = 0  # of the batch that was waited for last
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._sum: int | None = None
        self._dropped: int | None = None

    def told(self) -> int | None:
        """How many of the step so far; None where nothing is known."""
        return self._dropped if self._sum is None else self._sum

    def add(self, size: Sizes) -> int | None:
        """A micro-batch has ended; returns how many it has."""
        own, called, surplus = size.own, size.called, 0
        if size.has_wait:
            self._left = self._too_many = 0
            if size.waited is not None and called is not None and 0 < called < size.waited:
                self._left = size.waited - called
                own = called if self._is_cut else own
                self._too_many = max(0, (own or 0) - called)
        elif called is not None and 0 < called <= self._left:
            self._is_cut = True
            self._left -= called
            surplus, self._too_many = self._too_many, 0
        else:
            self._left = 0
        if own is not None:
            before = self._sum or 0  # the first piece may have been of an earlier step
            self._sum = max(0, before - surplus) + own
        return own

    def drop(self) -> None:
        """The gradients of all passes of the step so far were thrown away."""
        if self._sum is not None:
            self._dropped, self._sum = (self._dropped or 0) + self._sum, None

    def keep(self) -> None:
        """They were used after all."""
        if self._dropped is not None:
            self._sum, self._dropped = (self._sum or 0) + self._dropped, None


class StepSamples:
    """Both of the step in progress."""

    def __init__(self) -> None:
        self.samples, self.tokens = Count(), Count()
        self._both = (self.samples, self.tokens)

    def begin(self) -> None:
        """A step begins."""
        for count in self._both:
            count.begin()

    def batch_ended(self, batch: MicroBatch) -> None:
        """A micro-batch has ended: how large is it, and how large the step so far?"""
        if not batch.trains:
            return
        has_wait, waited, given = batch.has_wait, batch.waited, batch.given
        batch.samples = self.samples.add(Sizes(batch.samples, has_wait, waited[0], given[0]))
        batch.tokens = self.tokens.add(Sizes(batch.tokens, has_wait, waited[1], given[1]))

    def drop(self) -> None:
        """The gradients of all passes of the step so far were thrown away."""
        for count in self._both:
            count.drop()

    def keep(self) -> None:
        """They were used after all."""
        for count in self._both:
            count.keep()
