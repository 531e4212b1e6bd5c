"""Evaluation inside a training: tells it from training, and writes python.evaluations.

Rules of this file: runs in the training thread, at calls of root modules and at batches. What lies
between the end of a step and the first training of the next, and trains nothing, is no part of a
step: that begins anew as the training goes on. A batch that was fetched before may be the
training's all the same.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ....ring.format import DONE
from ....ring.writer import RingWriter
from ..torch_types import Module
from .ends.carried_gradients import CarriedGradients

_NS = 1e-9
_MOST_WAITS = 4


class Call(Protocol):
    """A call of a root module: what is told of it here."""

    @property
    def root(self) -> Module:
        """The root."""

    @property
    def called(self) -> Module:
        """What is called of it: itself, or a part."""

    @property
    def ids(self) -> tuple[int, int, int]:
        """The numbers of the root's names."""

    @property
    def samples(self) -> int | None:
        """How many samples it is given, where that is known."""


class Wait(NamedTuple):
    """A batch that was waited for: as `StepRows.data_waited` is told of it.

    Attributes:
        samples: How many samples it has, where that is known.
        tokens: How many tokens, where that is known.
        has_batch: Whether it came: else the loader is at its end, or has failed.
    """

    start_ns: int
    took_ns: int
    samples: int | None
    tokens: int | None
    has_batch: bool = True


class _Early(NamedTuple):
    """Calls without gradients, before any training of the step, that may turn out as evaluation.

    Attributes:
        root: Which root was called first, by its identity.
    """

    root: int
    start_ns: int
    calls: int
    samples: int


class _Places(NamedTuple):
    """Where the columns are."""

    duration_ns: int
    model: int
    calls: int
    samples: int
    data_wait_s: int
    forward_s: int


class Evaluations:
    """The evaluation in progress, if there is one.

    Attributes:
        is_on: Whether the training has not gone on since a call that was evaluation.
        has_seen: Whether there is anything to forget.
    """

    def __init__(
        self, ring: RingWriter, carried: CarriedGradients, is_trained: Callable[[Any], bool]
    ) -> None:
        """Begin with none.

        Args:
            is_trained: Whether an optimizer steps parameters of a root module.
        """
        self._carried = carried
        self._ring = ring
        self._at = _Places(*ring.places_of(*_Places._fields))
        self._is_trained = is_trained
        self._in_training: set[int] = set()
        self.is_on = False
        self.forget()

    def forget(self) -> None:
        """The training goes on, or a step has ended: nothing has been evaluated since."""
        self._called: dict[int, weakref.ref[Any]] = {}
        self._in_evaluation_mode: weakref.ref[Any] | None = None
        self._largest: int | None = None
        self._before: list[Wait] = []
        self._after: list[Wait] = []
        self._early: _Early | None = None
        self._between_ns = 0
        self.is_on = self.has_seen = False

    def is_evaluation(self, root: Module, samples: int | None) -> bool:
        """Whether a call without gradients, before any training of the step, is evaluation.

        That of a model which is trained, in evaluation mode, is. A teacher, a target network, and
        what makes samples for another model are called once before the training goes on: only what
        is called again and again, by itself or in turn with others, is evaluated. In training mode
        what comes with more samples than all before it is something else: a step's own batch behind
        those few that a policy acted on. So is what comes in training mode behind a validation, as
        pseudo labels do, and a call whose results the step is known to be trained by.

        Args:
            samples: How many it is given, where that is known.
        """
        self.has_seen = True
        if root.training and self._carried.called(root):
            return False
        is_larger = root.training and _is_more(samples, self._largest)
        if samples is not None:
            self._largest = max(samples, self._largest or 0)
        if self.is_on:
            return not (is_larger or self._trains_again(root))
        known = self._called.get(id(root))
        is_again = known is not None and known() is root and not is_larger
        self._called[id(root)] = weakref.ref(root)
        is_evaluated = not root.training and self._is_trained(root)
        if is_evaluated:
            self._in_evaluation_mode = weakref.ref(root)
        if not (is_again or is_evaluated):
            self._come_early(root, samples)
        elif self._early is not None and not (is_again and self._early.root == id(root)):
            self._drop_early()
        return is_again or is_evaluated

    def _come_early(self, root: Module, samples: int | None) -> None:
        """A call is the step's, unless the next ones show that an evaluation began with it."""
        early = self._early
        if early is None:
            now_ns = time.perf_counter_ns()
            start_ns = self._before[-1].start_ns if self._before else now_ns
            early = _Early(id(root), start_ns, 0, 0)
        calls, known = early.calls + 1, early.samples + (samples or 0)
        self._early = early._replace(calls=calls, samples=known)

    def _drop_early(self) -> None:
        """Another root begins an evaluation: those calls, and the first batch, are the step's."""
        self._before.extend(self._after)
        self._after.clear()
        self._early = None

    def step_ended(self) -> None:
        """Nothing has been trained since."""
        self._in_training.clear()

    def trained(self, root: Module, called: Module) -> None:
        """A root, or the module in it that is called, is called in the step, with gradients."""
        if called.training:
            self._in_training.add(id(root))

    def is_amid(self, root: Module, called: Module) -> bool:
        """Whether a call without gradients evaluates what the step trains, between two passes.

        It must be in evaluation mode, in which the step has not trained it.
        """
        is_amid = not called.training and id(root) in self._in_training
        if is_amid and not self.is_on:
            self.forget()  # batches from before the step's first pass
        return is_amid

    def _trains_again(self, root: Module) -> bool:
        """Whether a model that was evaluated in evaluation mode is in training mode again."""
        evaluated = self._in_evaluation_mode
        return evaluated is not None and evaluated() is root and root.training

    def call_begins(
        self, step: int, thread_id: int, call: Call, forward_ns: Callable[[], int]
    ) -> None:
        """A call that is evaluation begins.

        Args:
            forward_ns: Tells how long the calls of the step so far took: they were evaluation, too.
        """
        self.has_seen = True
        now_ns = time.perf_counter_ns()
        self._between_ns += sum(wait.took_ns for wait in self._after)
        self._after.clear()
        if not self.is_on:
            self.is_on = True
            start = self._before[-1].start_ns if self._before else now_ns
            begun = self._early or _Early(0, start, 0, 0)
            _, self._start_ns, self._calls, self._samples = begun
            self._word = self._ring.open_row(self._start_ns, step, thread_id)
            self._model, self._forward_ns = call.ids[0], forward_ns() if self._early else 0
            self._first = id(call.called)
        if call.called is call.root or id(call.called) == self._first:  # parts share their samples
            self._samples += call.samples or 0
        self._called_ns = now_ns

    def call_ended(self, now_ns: int) -> None:
        """It has ended."""
        if not self.is_on:
            return
        self._calls += 1
        self._forward_ns += now_ns - self._called_ns
        self.ended_ns = now_ns
        closing = self._ring.no_closing()
        at = self._at
        closing[at.duration_ns] = now_ns - self._start_ns
        closing[at.model] = self._model
        closing[at.calls] = self._calls
        if self._samples:
            closing[at.samples] = self._samples
        waited_ns = self._between_ns + sum(w.took_ns for w in self._before[-1:])
        if waited_ns:
            closing[at.data_wait_s] = waited_ns * _NS
        closing[at.forward_s] = self._forward_ns * _NS
        self._ring.close_row(self._word, DONE, *closing)

    def data_waited(self, wait: Wait) -> None:
        """A batch has been waited for before any training of the step."""
        self.has_seen = True
        waits = self._after if self.is_on or self._early else self._before
        waits.append(wait)
        del waits[: max(0, len(waits) - _MOST_WAITS)]

    def resumed(self) -> tuple[int, list[Wait]]:
        """The training goes on.

        Returns:
            When its step begins, and the batches that are the training's.
        """
        start, waits = self.ended_ns, list(self._after)
        if not waits:
            # The first batch was the training's, unless it is the evaluation's only first one.
            own = self._before[:1] if len(self._before) > 1 or not self._between_ns else []
            waits = [wait._replace(start_ns=start - wait.took_ns) for wait in own]
            start -= sum(wait.took_ns for wait in waits)
        self.forget()
        return start, waits

    def resumed_amid(self) -> list[Wait]:
        """The same in a step that had begun before: the batches that are the training's."""
        waits = list(self._after)
        if self.is_on:
            self.forget()
        return waits


def _is_more(samples: int | None, others: int | None) -> bool:
    """Whether samples are more than others, as far as both are known."""
    return samples is not None and others is not None and samples > others
