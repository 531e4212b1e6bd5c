"""The micro-batches of the step in progress: what each was given, its losses, and their sums.

Rules of this file: used by the training thread only, a few times per micro-batch. The C part has
the same; what is meant is said here, and a test compares the two.
"""

from __future__ import annotations

from typing import Any, cast

from .....messages.frozen import dataclass
from .....ring.format import FAILED
from .....ring.native import IN_C
from .....ring.writer import RingWriter
from ...data.shapes import Size
from ...numbers.number import Number
from ..phases import PHASES, Phases
from .late_rows import LateRows
from .losses import CommonShare, Loss, Total, add_losses
from .micro_batch_rows import CallsAhead, MicroBatch, MicroBatchRows, micro_batch_columns, told_of
from .step_places import StepEnd, columns_of
from .step_samples import StepSamples
from .step_watch import MemoryMoments


@dataclass(slots=True)
class _EndPlaces:
    """Where the columns of python.steps are that `fill_end` fills in, beside those of phases."""

    duration_ns: int
    allocated_bytes: int
    optimizer: int
    lr: int
    model: int
    micro_batches: int
    optimizer_steps: int
    samples: int
    other_s: int


class StepBatches:
    """They, and the clock that tells when one begins and ends.

    Attributes:
        phases: That clock.
        memory: Is told of it, in steps that get rows of the memory; None in others.
        losses: Those of the step's micro-batches so far.
        dropped: How many of them, the first, were of passes whose gradients are gone.
        count: How many micro-batches have ended in the step.
    """

    def __init__(self, ring: RingWriter, late: LateRows, steps: RingWriter) -> None:
        """Begin before any step.

        Args:
            ring: That of python.micro_batches.
            steps: That of python.steps.
        """
        places, self._phases_at = _end_columns(steps)
        self._at = _EndPlaces(*places)
        self.phases = Phases(self.began, self.ended)
        self.memory: MemoryMoments | None = None
        self._rows = MicroBatchRows(ring, late)
        self._batch: MicroBatch | None = None
        self._ahead, self._sizes = CallsAhead(), StepSamples()
        self.begin(0, 0)

    def begin(self, step: int, thread_id: int) -> None:
        """A step begins, which knows nothing of the one before."""
        self._step, self._thread_id = step, thread_id
        self._ahead.forget()
        self.losses: list[Loss] = []
        self.count = self.dropped = 0
        self._last: MicroBatch | None = None
        self._sizes.begin()

    @property
    def tokens(self) -> int | None:
        """How many the step has so far; None where nothing is known."""
        return self._sizes.told()[1]

    def fill_end(self, closing: list[object], ended: StepEnd, optimizer_steps: int) -> float | None:
        """Fill in what is known of the step as it ends, but for what its losses tell.

        Args:
            closing: The closing columns of its row, all NULL so far.

        Returns:
            Its loss, where that is one that is here and that nothing has divided; else None.
        """
        at = self._at
        took_ns, memory_bytes, optimizer, lr, _, models = ended
        closing[at.other_s] = 0.0
        self.phases.fill_seconds(closing, self._phases_at)
        closing[at.duration_ns], closing[at.allocated_bytes] = took_ns, memory_bytes
        closing[at.optimizer], closing[at.lr], closing[at.model] = optimizer, lr, models
        closing[at.micro_batches] = self.count
        if optimizer_steps:
            closing[at.optimizer_steps] = optimizer_steps
        if (samples := self._sizes.told()[0]) is not None:
            closing[at.samples] = samples
        losses = self.losses
        if len(losses) != 1 or losses[0].share is not None or losses[0].parts:
            return None
        number = losses[0].number
        return number.here if type(number) is Number else None

    @property
    def micro_batch(self) -> int | None:
        """The number of the micro-batch in progress; None between two of them."""
        return None if self._batch is None else self.count

    @property
    def has_passes(self) -> bool:
        """Whether a backward pass of the step in progress has ended."""
        return self.count > 0 or (self._batch is not None and self._batch.has_pass)

    def began(self, now_ns: int) -> None:
        """The first phase of a micro-batch begins."""
        if self.memory is not None:
            self.memory.batch_changed()
        self._batch = self._rows.open(
            now_ns, self._step, self.count, self._thread_id, self.phases.spent_ns
        )

    def ended(self, now_ns: int) -> None:
        """The micro-batch has ended: its row is complete, and the step knows of it."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        if self.count and not (batch.has_pass or batch.has_call or batch.losses):
            self._rows.take_back(batch)  # what it was fetched for comes in the next step
            return
        self._last = batch
        self.count += 1
        if self.memory is not None:
            self.memory.batch_changed()
        self._sizes.batch_ended(batch)
        more = self._rows.close(batch, now_ns, self.phases)
        self.dropped = add_losses(self.losses, more, self.dropped)

    def take_back(self) -> None:
        """The micro-batch in progress has turned out to be none: the next one has its row."""
        if self._batch is not None:
            self._rows.take_back(self._batch)
            self._batch = None

    def resume(self) -> bool:
        """The micro-batch that has ended last is not over; returns whether there was one."""
        if self._last is None:
            return False
        self._batch, self._last = self._last, None
        self._sizes.begin()
        self.count -= 1
        return True

    def abandon(self) -> None:
        """Recording stops: the row in progress stays open."""
        self._batch = None

    def came(self, samples: int | None, tokens: int | None) -> None:
        """A batch was waited for."""
        if self._batch is not None:
            self._batch.came(samples, tokens)

    def called(self, root: int, size: Size, trains: bool) -> None:  # noqa: FBT001 - as in C
        """A root is called in the step: the first tensor that it is given tells how large that is.

        Args:
            root: Its identity.
            trains: Whether a backward pass may come of it.
        """
        if self._batch is not None:
            self._batch.called(root, size, trains=trains)
        if trains:
            self._ahead.called(root, size)

    def call_failed(self) -> None:
        """It has ended by an exception."""
        self._ahead.call_failed()
        if self._batch is not None:
            self._batch.call_failed()

    def pass_begins(self, now_ns: int, trains: bool, keeps_graph: bool) -> None:  # noqa: FBT001 - as in C
        """A backward pass begins: one of a call that was made ahead begins a micro-batch."""
        size = self._ahead.pass_begins(keeps_graph=keeps_graph) if trains else None
        if size is not None and self._batch is not None and self._batch.has_pass:
            self._batch.is_one_of_several()
            self.phases.end_batch()
        self.phases.ensure_batch(now_ns)
        if size is not None and self._batch is not None:
            self._batch.called(0, size, trains=True)

    def evaluation_begins(self) -> None:
        """What is called now is no part of the step: nor were batches that were waited for last."""
        batch = self._batch
        if batch is None or (batch.has_call and not batch.has_pass):
            return
        if not batch.has_pass:
            self.take_back()
        self.phases.end_batch()

    def lost(self, loss: Number | Total | None, share: Number | CommonShare | None) -> None:
        """A backward pass begins with a loss."""
        if self._batch is not None and loss is not None:
            self._batch.losses.append(Loss(loss, share))

    def lost_in_function(self, loss: Number | None) -> None:
        """The same inside of a function that torch transforms: it counts where no other does."""
        if self._batch is not None and loss is not None:
            self._batch.by_function = (*self._batch.by_function, Loss(loss, None))

    def pass_failed(self) -> None:
        """A backward pass has ended by an exception, and with it the micro-batch."""
        if self._batch is not None:
            self._batch.state, self._batch.has_pass = FAILED, True
            self.phases.end_batch()

    def reached(self, optimizers: frozenset[int], trains: bool) -> None:  # noqa: FBT001 - as in C
        """A backward pass has ended that made gradients for these optimizers, or for none."""
        if self._batch is not None:
            self._batch.reached(optimizers, trains=trains)

    def exchange(self, losses: list[Loss], dropped: int) -> tuple[list[Loss], int]:
        """Another training goes on, in the same step: the losses of each are its own.

        Returns:
            Those of the other so far.
        """
        if self._batch is not None and self._batch.losses:
            self.phases.end_batch()
        before = self.losses, self.dropped
        self.losses, self.dropped = losses, dropped
        return before

    def drop_losses(self) -> None:
        """The gradients of all passes of the step so far were thrown away."""
        self.dropped = len(self.losses)
        self._sizes.drop()

    def keep_losses(self) -> None:
        """The script had put them aside, and they are used after all."""
        self.dropped = 0
        self._sizes.keep()

    def replace_losses(self) -> None:
        """The losses of the step so far were parts of the one that comes now."""
        self.dropped = len(self.losses)
        if self._batch is not None:
            self._batch.losses.clear()


def _end_columns(steps: RingWriter) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Where what a step's end fills in is, as `_EndPlaces` has it, and where its phases."""
    places = tuple(steps.places_of(*_EndPlaces.__match_args__))
    return places, columns_of(steps, range(len(PHASES)))


def new_step_batches(
    ring: RingWriter, late: LateRows, steps: RingWriter, *, in_c: bool = True
) -> StepBatches:
    """The micro-batches of a step: those of the C part, where it was built and may be used."""
    if not in_c or IN_C is None:
        return StepBatches(ring, late, steps)
    places, columns = micro_batch_columns(ring)
    end_places, end_columns = _end_columns(steps)
    made: Any = IN_C.StepBatches(
        ring=ring,
        late=late.write,
        nulls=tuple(ring.no_closing()),
        phases=PHASES,
        columns=columns,
        places=places,
        end_columns=end_columns,
        end_places=end_places,
        plain=Loss(Number(0.0), None),
        number=Number,
        told_of=told_of,
        add_losses=add_losses,
    )
    return cast("StepBatches", made)
