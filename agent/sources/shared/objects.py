"""The objects of the training that were met: models, optimizers, what came in, and the loss.

Rules of this file: state only, and nothing kept alive by it. Runs in the training threads.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from ..data.inputs import Inputs
from ..model.given_names import ModelNames, optimizer_names
from ..steps.rows.late_rows import Later
from .met import Met
from .versions import AsSeen


class Clip(NamedTuple):
    """What the script clips gradients to.

    Attributes:
        ends: The first and the last parameter whose gradients it clips.
        tensors: How many they are.
    """

    max_norm: float
    ends: tuple[AsSeen, AsSeen]
    tensors: int


class Objects:
    """What is known of them.

    Attributes:
        model: The root module last trained or called, for `eval` to name.
        optimizer: The optimizer whose steps are counted.
        roots: The modules that were called from outside of any other.
        models: What root modules are called.
        optimizers: Those that have stepped.
        beside: Those of them that have stepped in a thread whose steps are not counted.
        optimizer_names: What optimizers are called.
        made: Those that exist, as far as they were met.
        inputs: The tensors that came in last.
        loss: What the last backward pass began with, without its scale: a weak reference to the
            tensor where it has none, and its number; of several, their sum.
        clip: What the script has clipped last, with a norm over all of it.
        wrapped: Weak references to wrappers that average gradients over ranks, and to what is in
            each.
        held_lr: The rates that an action has optimizers step with, in the place of the script's, by
            ``id(optimizer)``.
    """

    def __init__(self) -> None:
        self.model: weakref.ref[Any] | None = None
        self.optimizer: weakref.ref[Any] | None = None
        self.roots = Met()
        self.models = ModelNames()
        self.optimizers = Met()
        self.beside = Met()
        self.optimizer_names = optimizer_names()
        self.made = Met()
        self.inputs = Inputs()
        self.loss: tuple[weakref.ref[Any] | None, Later] | None = None
        self.clip: Clip | None = None
        self.wrapped: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
        self.held_lr: dict[int, float] = {}

    def counted_optimizers(self, met: Met | None = None) -> list[Any]:
        """Those that have stepped, but for those of other threads' trainings.

        The gradients of the others may be replaced at any moment.

        Args:
            met: Which are meant instead of those that have stepped.
        """
        beside = set(map(id, self.beside.alive()))
        return [o for o in (met or self.optimizers).alive() if id(o) not in beside]

    def unwrapped(self) -> list[Any]:
        """The modules that have outlived a wrapper around them."""
        found = [module() for wrapper, module in list(self.wrapped) if wrapper() is None]
        return [module for module in found if module is not None]
