"""Writes the rows of python.optimizer_steps, and tells whose a step's losses were.

Rules of this file: used by the training thread only, once per step of an optimizer. A number that
is still on its way from the device is written into its row later. The C part does the same; what is
meant is said here, and a test compares the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from .....ring.format import DONE, NULL_FLOAT
from .....ring.native import IN_C
from .....ring.writer import RingWriter
from ...numbers.number import Number
from .late_rows import Later, LateRows, put
from .losses import Loss, Windows, loss_of, used_of

Stepped = tuple[Any, int]
"""An optimizer that has stepped, and the number of the name of its class."""

_CLOSING = "optimizer class model optimizers loss lr grad_norm"
"""The closing columns of python.optimizer_steps, in the order in which they are written."""
_LOSS, _NORM = 4, 6


class OptimizerStep(NamedTuple):
    """What is known of an optimizer as it has stepped.

    Attributes:
        who: Its number, or that of the group that steps in one backward pass.
        name: The number of what it is called.
        class_name: The number of the name of its class.
        optimizers: How many it is.
        models: The number of the name of the models that it trains.
        lr: The learning rate; `NULL_FLOAT` where there is none.
        numbers: Those of all of them, one by one.
    """

    who: int
    name: int
    class_name: int
    optimizers: int
    models: int
    lr: float
    numbers: frozenset[int] = frozenset()


class OptimizerRows:
    """The steps of optimizers in the training's step in progress.

    Attributes:
        count: How many there were.
        windows: How the script divides the losses of each.
    """

    def __init__(self, ring: RingWriter, late: LateRows) -> None:
        self._ring = ring
        self._late = late
        ring.require_closing(_CLOSING)
        self.windows = Windows()
        self.forget()

    def forget(self) -> None:
        """Another step begins."""
        self.count = 0
        self._used: set[int] = set()  # which of the losses
        self._last: list[Loss] = []
        self._share: float | None = None  # of each of the last
        self._norm: Number | None = None
        self._with_loss: set[int] = set()

    @property
    def have_one_loss(self) -> bool:
        """Whether there are not several optimizers that had losses of their own."""
        return len(self._with_loss) <= 1

    def write(
        self,
        place: tuple[int, int, int],
        step: OptimizerStep,
        losses: list[Loss],
        norm: Number | None,
        dropped: int,
    ) -> None:
        """An optimizer has stepped.

        Args:
            place: When, and the step and the thread.
            losses: Those of the training's step so far: its own are those that no optimizer before
                has used, and that its parameters have gradients of.
            norm: The last norm of gradients that was taken in the training's step.
            dropped: How many of the losses were of passes whose gradients nobody has used.
        """
        who, name, class_name, optimizers, models, lr, numbers = step
        if len(losses) == 1 and not (dropped or self._used or losses[0].reached):  # as mostly
            own = losses.copy()
            self._used.add(0)
        else:
            own = own_of(self._used, losses, dropped, numbers)
        if own:
            is_whole = len(own) == 1 and own[0].share is None
            self._last, self._share = own, None if is_whole else self.windows.seen(who, own)
            self._with_loss.add(who)
        self.count += 1
        closing: list[object]
        closing = [name, class_name, models, optimizers, NULL_FLOAT, lr, NULL_FLOAT]
        later: list[tuple[int, Later]] = []
        put(loss_of(self._last, self._share), _LOSS, closing, later)
        if norm is not self._norm and norm is not None:
            put(norm, _NORM, closing, later)
        self._norm = norm
        word = self._ring.open_row(*place)
        if later:
            self._late.write(self._ring, word, closing, later)
        else:
            self._ring.close_row(word, DONE, *closing)


def own_of(used: set[int], losses: list[Loss], dropped: int, numbers: frozenset[int]) -> list[Loss]:
    """Those of a step's losses that are an optimizer's own.

    Args:
        used: The places of those that others have used; its own are added.
        numbers: The optimizer's.
    """
    own = []
    for place in used_of(losses, dropped):
        loss = losses[place]
        if place not in used and (not loss.reached or loss.is_for(numbers)):
            used.add(place)
            own.append(loss)
    return own


def new_optimizer_rows(ring: RingWriter, late: LateRows, *, in_c: bool = True) -> OptimizerRows:
    """What writes the rows: the C part, where it was built and may be used."""
    if not in_c or IN_C is None:
        return OptimizerRows(ring, late)
    ring.require_closing(_CLOSING)
    made: Any = IN_C.OptimizerRows(
        ring=ring,
        late=late.write,
        windows=Windows(),
        loss=Loss,
        number=Number,
        own_of=own_of,
        loss_of=loss_of,
        null=NULL_FLOAT,
    )
    return cast("OptimizerRows", made)
