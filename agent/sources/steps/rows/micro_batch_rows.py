"""Writes the rows of python.micro_batches.

Rules of this file: used by the training thread only, a few times per micro-batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from .....messages.frozen import dataclass
from .....ring.format import DONE
from .....ring.writer import RingWriter
from ...data.shapes import Size
from ..phases import GRADIENTS, OPTIMIZER, OTHER, PHASES, Phases
from .late_rows import Later, LateRows, put
from .losses import Loss, summed
from .step_places import columns_of

_MATRIX = 2
_MOST_CALLS = 256
_PHASES = sorted(set(range(len(PHASES))) - {GRADIENTS, OPTIMIZER, OTHER})
"""Those that a micro-batch has."""


@dataclass(slots=True)
class _Places:
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
        samples: How many it has, as far as is known; so are tokens and elements.
        by_function: The losses of its passes inside of functions that torch transforms.
        has_call: Whether a root was called in it.
        has_pass: Whether a backward pass has ended in it.
    """

    # Most of it as it begins stands in the class: every step makes one.
    samples: int | None = None
    tokens: int | None = None
    elements: int | None = None
    state = DONE
    has_call = has_pass = False
    by_function: Sequence[Loss] = ()
    _given: Size | None = None  # of the call that tells how large it is
    _others = (0, 0)  # samples and tokens of the same root's calls behind it
    _root = 0
    _trains = _is_unsure = False

    def __init__(self, word: int, started_ns: int, before_ns: list[int]) -> None:
        self.word = word
        self.started_ns = started_ns
        self.before_ns = before_ns  # what the step had spent on each phase
        self.losses: list[Loss] = []

    def came(self, samples: int | None, tokens: int | None) -> None:
        """A batch was waited for: so large it is where no call tells."""
        self._seen(samples, tokens)

    def _seen(self, samples: int | None, tokens: int | None) -> None:
        """Who knows first is believed where the call that tells does not know, or has failed."""
        if self._is_unsure and samples is not None:
            self.samples, self.tokens, self._is_unsure = samples, tokens, False
            self._given, self._others = None, (0, 0)
        self.samples = samples if self.samples is None else self.samples
        self.tokens = tokens if self.tokens is None else self.tokens

    def called(self, root: int, size: Size, *, trains: bool) -> None:
        """A root is called with a tensor of such a size; the first that may be trained tells."""
        shape, samples, tokens = size
        self._seen(samples, tokens)
        if self._given is None or (trains and not self._trains):
            self._given, self._root, self._trains = size, root, trains
            if shape is not None:
                self.elements = math.prod(shape)
        else:
            if trains and root == self._root:
                before = self._others
                self._others = (before[0] + (samples or 0), before[1] + (tokens or 0))
            if self.elements is None and shape is not None:
                self.elements = math.prod(shape)
        self.has_call = True

    def is_one_of_several(self) -> None:
        """The calls that were made behind its own are other micro-batches'."""
        self._others = (0, 0)

    def settle(self) -> None:
        """All calls are known: what the model was given counts, not the batch it came from.

        That stands where it was given all of it: in parts, with another dimension first, or within
        `vmap`.
        """
        if self._given is None:
            return
        shape, samples, tokens = self._given
        if samples is not None and samples != self.samples:
            if shape is not None and self._is_all(shape, samples, tokens):
                return
            if 0 < self._others[0] < (self.samples or 0) - samples:  # in parts, and a rest left out
                self.samples = samples + self._others[0]
                self.tokens = self.tokens if tokens is None else tokens + self._others[1]
                return
            self.samples = samples
        if tokens is not None and tokens + self._others[1] != self.tokens:
            self.tokens = tokens

    def _is_all(self, shape: tuple[int, ...], samples: int, tokens: int | None) -> bool:
        """Whether the calls had all samples that were known before."""
        known = self.samples or 0
        if samples + self._others[0] == known:
            return True
        if samples != shape[0]:  # mapped over
            return samples == shape[0] * known
        is_other_order = len(shape) > 1 and shape[1] == known
        return is_other_order and (len(shape) > _MATRIX or tokens == self.tokens is not None)

    def call_failed(self) -> None:
        """The call has ended by an exception: it may be done again, in smaller parts."""
        self._is_unsure, self.elements = True, None

    def reached(self, optimizers: frozenset[int], *, trains: bool) -> None:
        """A backward pass has ended that made gradients for these optimizers.

        Args:
            trains: Whether it made some of anything that is trained, as far as is known.
        """
        self.has_pass = True
        if self.losses:
            last = self.losses[-1]
            reached, trains = optimizers or last.reached, trains and last.trains
            if reached is not last.reached or trains is not last.trains:
                self.losses[-1] = last._replace(reached=reached, trains=trains)


class CallsAhead:
    """Calls of one root that no backward pass has come for yet.

    In a pipeline all are made first, or some: then each pass is of another micro-batch, though no
    call lies between two of them. Passes that share a graph are of one call: all but the last keep
    it.
    """

    def __init__(self) -> None:
        self._calls: deque[Size] = deque(maxlen=_MOST_CALLS)
        self._root = 0
        self._has_passed = self._has_freed = False  # since the last call

    def called(self, root: int, size: Size) -> None:
        """A root, by its identity, is called with gradients."""
        if root != self._root:
            self._calls.clear()
        self._root, self._has_passed, self._has_freed = root, False, False
        self._calls.append(size)

    def call_failed(self) -> None:
        """The last of them has ended by an exception."""
        if self._calls:
            self._calls.pop()

    def pass_begins(self, *, keeps_graph: bool) -> Size | None:
        """A backward pass that is trained by begins.

        Returns:
            What the call was given that it is of, if that is another one than of the pass before
            and no call lies between the two.
        """
        is_other = self._has_freed
        if is_other or not self._has_passed:
            size = self._calls.popleft() if self._calls else None
        else:
            size = None
        self._has_passed, self._has_freed = True, not keeps_graph
        return size if is_other else None

    def forget(self) -> None:
        """A step begins."""
        self._calls.clear()
        self._root, self._has_passed, self._has_freed = 0, False, False


def micro_batch_columns(
    ring: RingWriter,
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Where what a micro-batch's end fills in is, as `_Places` has it, and where its phases."""
    return tuple(ring.places_of(*_Places.__match_args__)), columns_of(ring, _PHASES)


def told_of(losses: list[Loss], by_function: Sequence[Loss]) -> list[Loss]:
    """The losses of a micro-batch, of passes that began with several, or with none."""
    return summed(losses) or [*by_function]


class MicroBatchRows:
    """Opens and completes the rows."""

    def __init__(self, ring: RingWriter, late: LateRows) -> None:
        self._ring = ring
        self._late = late
        places, self._phases = micro_batch_columns(ring)
        self._at = _Places(*places)
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
        phases.fill_seconds(closing, self._phases, batch.before_ns)
        closing[at.duration_ns] = now_ns - batch.started_ns
        if batch.samples is not None:
            closing[at.samples] = batch.samples
        if batch.tokens is not None:
            closing[at.tokens] = batch.tokens
        if batch.elements is not None:
            closing[at.elements] = batch.elements
        losses = batch.losses
        if len(losses) != 1:
            losses = told_of(losses, batch.by_function)
        later: list[tuple[int, Later]] = []
        if len(losses) == 1:
            put(losses[0].number, at.loss, closing, later)
        if later:
            self._late.write(self._ring, batch.word, closing, later, batch.state)
        else:
            self._ring.close_row(batch.word, batch.state, *closing)
        return losses
