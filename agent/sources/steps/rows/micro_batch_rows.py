"""Writes the rows of python.micro_batches.

Rules of this file: used by the training thread only, a few times per micro-batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .....ring.format import DONE
from .....ring.writer import RingWriter
from ...numbers.number import Number
from ..phases import GRADIENTS, OPTIMIZER, OTHER, PHASES, Phases
from .late_rows import Later, LateRows
from .losses import Loss, summed
from .phase_columns import PhaseColumns

_PHASES = sorted(set(range(len(PHASES))) - {GRADIENTS, OPTIMIZER, OTHER})
"""Those that a micro-batch has."""


class _Places(NamedTuple):
    """Where the columns are that a micro-batch's end fills in, beside those of phases."""

    duration_ns: int
    samples: int
    tokens: int
    elements: int
    loss: int


class MicroBatch:
    """The micro-batch in progress.

    Attributes:
        word: Its row.
        losses: What its backward passes began with.
        state: How it has ended: done, or failed.
    """

    __slots__ = (
        "before_ns", "elements", "losses", "samples", "started_ns", "state", "tokens", "word",
    )  # fmt: skip

    def __init__(self, word: int, started_ns: int, before_ns: list[int]) -> None:
        self.word = word
        self.started_ns = started_ns
        self.before_ns = before_ns  # what the step had spent on each phase
        self.losses: list[Loss] = []
        self.samples: int | None = None
        self.tokens: int | None = None
        self.elements: int | None = None
        self.state = DONE

    def seen(self, samples: int | None, tokens: int | None) -> None:
        """How large it is; who knows first is believed."""
        self.samples = samples if self.samples is None else self.samples
        self.tokens = tokens if self.tokens is None else self.tokens

    def given(self, shape: tuple[int, ...] | None) -> None:
        """A root is called with a tensor of such sizes; the first one tells."""
        if self.elements is None and shape is not None:
            self.elements = math.prod(shape)

    def lost(self, loss: Number, share: Number | None) -> None:
        """A backward pass begins with a loss."""
        self.losses.append(Loss(loss, share))

    def reached(self, optimizers: frozenset[int], *, trains: bool) -> None:
        """A backward pass has ended that made gradients for these optimizers.

        Args:
            trains: Whether it made some of anything that is trained, as far as is known.
        """
        if self.losses:
            last = self.losses[-1]
            reached, trains = optimizers or last.reached, trains and last.trains
            self.losses[-1] = last._replace(reached=reached, trains=trains)

    @property
    def trains(self) -> bool:
        """Whether any of its passes made some, as far as is known."""
        return not self.losses or any(loss.trains for loss in self.losses)


class MicroBatchRows:
    """Opens and completes the rows."""

    def __init__(self, ring: RingWriter, late: LateRows) -> None:
        self._ring = ring
        self._late = late
        self._at = _Places(*ring.places_of(*_Places._fields))
        self._phases = PhaseColumns(ring, _PHASES)
        self._spare: int | None = None  # the row of one that has turned out to be none

    def open(
        self, now_ns: int, step: int, number: int, thread_id: int, spent_ns: list[int]
    ) -> MicroBatch:
        """The first phase of a micro-batch begins.

        Args:
            number: Which of its step it is.
            spent_ns: What the step has spent on each phase so far.
        """
        opening = (now_ns, step, number, thread_id)
        word, self._spare = self._spare, None
        if word is None:
            word = self._ring.open_row(*opening)
        else:
            self._ring.reopen_row(word, *opening)
        return MicroBatch(word, now_ns, spent_ns.copy())

    def take_back(self, batch: MicroBatch) -> None:
        """It has turned out to be none: the next one has its row."""
        self._spare = batch.word

    def close(self, batch: MicroBatch, now_ns: int, phases: Phases) -> list[Loss]:
        """It has ended, and its row is complete; returns its losses."""
        at, closing = self._at, self._ring.no_closing()
        self._phases.fill(closing, phases, batch.before_ns)
        closing[at.duration_ns] = now_ns - batch.started_ns
        if batch.samples is not None:
            closing[at.samples] = batch.samples
        if batch.tokens is not None:
            closing[at.tokens] = batch.tokens
        if batch.elements is not None:
            closing[at.elements] = batch.elements
        later: list[tuple[int, Later]] = []
        losses = summed(batch.losses)
        if len(losses) == 1:
            later.append((at.loss, losses[0].number))
        self._late.write(self._ring, batch.word, closing, later, batch.state)
        return losses
