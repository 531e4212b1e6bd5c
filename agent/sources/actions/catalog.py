"""Which class does what is asked for; each is loaded when it is first asked.

Rules of this file: names only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from ....messages.about.act import (
    Asked,
    Checkpoint,
    Cleanup,
    Clip,
    KeepLayers,
    Lr,
    NanGuard,
    SkipAttention,
)
from .ledger import Applied
from .targets.scene import Scene

_HOMES: dict[type, tuple[str, str]] = {
    Lr: ("learning_rate", "LearningRate"),
    Clip: ("clipping", "Clipping"),
    Checkpoint: ("checkpoint", "Checkpointing"),
    Cleanup: ("cleanup", "CleaningUp"),
    NanGuard: ("nan_guard", "NanGuarding"),
    KeepLayers: ("partial_model", "KeepingLayers"),
    SkipAttention: ("partial_model", "SkippingAttention"),
}


class Action(Protocol):
    """One change to the training."""

    def prepare(self, scene: Scene) -> None:
        """Look for what is needed, in a thread of the agent's; raises `ActRefused`."""

    def apply(self, scene: Scene) -> Applied:
        """Change it, all or nothing, in the training thread between two steps."""

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """What remains to be done or seen, in a thread of the agent's, until then by the clock."""


def action_for(asked: Asked) -> Action:
    """The action that is asked for.

    Raises:
        ActRefused: Its arguments make no sense.
    """
    module, name = _HOMES[type(asked)]
    cls = getattr(import_module(f".{module}", __package__), name)
    return cast("Action", cls(asked))
