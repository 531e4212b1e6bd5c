"""The steps whose gradients somebody has asked for: how far it is, and why it may come to nothing.

Rules of this file: the work is done in the training thread; every wait here has an end, and says
why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ....messages.broadcasts import broadcast_note
from ....messages.loss_inputs import LossInput
from ...on_demand.armed_job import ArmedJob
from .loss_graphs.broadcast import Broadcast, broadcast_of
from .loss_graphs.inputs import loss_input_of

_MOST_BARREN = 8
"""How many steps, or passes inside of functions of `torch.func`, may show no gradient."""
_BARREN = (
    f"{_MOST_BARREN} steps have ended, and none of them showed a gradient that can be read: neither"
    " as an optimizer of torch stepped, nor as a backward pass ended"
)
_TRANSFORMED = (
    "they are results of torch.func.grad, which go to the script alone: look at the variable that"
    " holds them with `eval`"
)


class SampledRows(Protocol):
    """What writes the rows of the steps that are asked for."""

    @property
    def has_stepped(self) -> bool:
        """Whether a training step has ended, now or before."""

    def step_ended(self) -> None:
        """A step has ended whose gradients were asked for."""

    def disarm(self, steps: GradientSteps) -> None:
        """That is over."""


class GradientSteps(ArmedJob):
    """Some steps whose gradients were asked for.

    Attributes:
        done: Steps whose rows are written.
        left_out: Gradients of the last step that could not be read.
        computed: How often its optimizer has computed its gradients anew.
        broadcast: A loss of these steps that compares each prediction with each target.
        loss_input: What a loss of these steps is given that it does not expect.
    """

    what = "gradients"

    def __init__(self, rows: SampledRows, steps: int, number: int) -> None:
        super().__init__(number, steps)
        self.left_out = 0
        self.computed = 1
        self.broadcast: Broadcast | None = None
        self.loss_input: LossInput | None = None
        self._rows = rows
        self._barren = 0

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        notes = []
        if self._is_without_step():
            notes.append("no optimizer has stepped since the agent came")
        if self.computed > 1:
            notes.append(
                f"the optimizer has computed gradients {self.computed} times in its step: these are"
                " the last"
            )
        if self.left_out:
            were = "gradient was" if self.left_out == 1 else "gradients were"
            notes.append(
                f"{self.left_out} {were} left out: sparse, or of a subclass of Tensor such as"
                " DTensor"
            )
        if self.broadcast is not None:
            notes.append(broadcast_note(*self.broadcast))
        if self.loss_input is not None:
            notes.append(self.loss_input.sentence())
        return tuple(notes)

    def step_ended(self) -> bool:
        """See `StepEndJob`; calls of a model alone bring it no nearer to its end."""
        moved_s = self.moved_s
        is_over = super().step_ended()
        if self._is_without_step():
            self.moved_s = moved_s
        return is_over

    def wrote(self, step: int, rows: int, left_out: int) -> None:
        """The rows of a step are written, or those of one of its optimizers."""
        self.state = "armed"
        self.left_out = left_out + (self.left_out if step == self.last_step else 0)
        self.saw(step)
        self.found += rows

    def backward_begins(self, tensors: Sequence[Any] = ()) -> None:
        """A backward pass of the steps begins, of these losses."""
        if self.broadcast is None:
            self.broadcast = next(filter(None, map(broadcast_of, tensors)), None)
        if self.loss_input is None:
            self.loss_input = next(filter(None, map(loss_input_of, tensors)), None)

    def transformed(self) -> None:
        """A backward pass has ended whose gradients only a function of `torch.func` sees."""
        self._barren += 1
        if self.state == "waiting" and self._barren >= _MOST_BARREN:
            self.failed(_TRANSFORMED)

    def _work(self) -> None:
        """Count, and end with the last."""
        self._rows.step_ended()
        if self.state == "armed" and self.first_step is not None and self.last_step is not None:
            self.done = self.last_step - self.first_step + 1
            if self.done >= self.steps:
                self.end()
        elif self._rows.has_stepped:
            self._barren += 1
            if self._barren >= _MOST_BARREN:
                self.failed(_BARREN)

    def _is_without_step(self) -> bool:
        """Whether it waits, and no training step has ended so far."""
        return self.state == "waiting" and not self._rows.has_stepped

    def _let_go(self) -> None:
        """No more rows."""
        self._rows.disarm(self)
