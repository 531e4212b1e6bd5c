"""What `Process.act` can be asked for, and what it answers: `probing.actions.Lr(scale=0.1)`.

Rules of this file: names for people; what they are stands in `probing.messages.about.act`.
"""

from __future__ import annotations

from .messages.about.act import (
    Act,
    Acts,
    Change,
    Checkpoint,
    Cleanup,
    Clip,
    KeepLayers,
    Lr,
    NanGuard,
    Run,
    SkipAttention,
    Undo,
)

__all__ = [
    "Act",
    "Acts",
    "Change",
    "Checkpoint",
    "Cleanup",
    "Clip",
    "KeepLayers",
    "Lr",
    "NanGuard",
    "Run",
    "SkipAttention",
    "Undo",
]
