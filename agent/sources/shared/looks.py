"""What looks at the training while somebody has asked for it.

Rules of this file: state only; what looks puts itself here, and takes itself away.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..torch_types import Module


class ModuleLook(Protocol):
    """Watches the next call of each root."""

    def root_called(self, root: Module, step: int) -> None:
        """A root is about to be called."""

    def root_left(self, root: Module, *, failed: bool = False) -> None:
        """Its call has ended."""


class NumericsLook(Protocol):
    """Watches for values that are not finite."""

    def loss_came(self, args: tuple[object, ...]) -> None:
        """A backward pass begins."""

    def backward_ended(self) -> None:
        """It has ended."""


class MemoryLook(Protocol):
    """Looks at the memory, from a step's end to the next backward pass."""

    def backward_began(self, args: tuple[object, ...]) -> None:
        """A backward pass begins."""


class SlowStepsLook(Protocol):
    """Looks at gradients as slow steps end."""

    def last(self) -> dict[int, Any] | None:
        """Those of the last end, by the parameter's identity; None where they are not known."""


class Closable(Protocol):
    """Holds something of the training as long as recording goes on."""

    def close(self) -> None:
        """Let go of it."""


class Looks:
    """The looks under way.

    Attributes:
        modules: At the next call of each root.
        seen: What such a look has shown of each module, by ``id(module)``.
        numerics: For values that are not finite, while it is armed.
        memory: At who holds it.
        slow_steps: At gradients, as slow steps end.
        births: In which step storages came, once somebody has looked.
        surveyor: What makes surveys of old objects, once somebody has asked for one.
    """

    def __init__(self) -> None:
        self.modules: ModuleLook | None = None
        self.seen: dict[int, Any] = {}
        self.numerics: NumericsLook | None = None
        self.memory: MemoryLook | None = None
        self.slow_steps: SlowStepsLook | None = None
        self.births: Closable | None = None
        self.surveyor: Closable | None = None

    def kept(self) -> list[Closable]:
        """What is to be closed as recording ends."""
        return [one for one in (self.births, self.surveyor) if one is not None]
