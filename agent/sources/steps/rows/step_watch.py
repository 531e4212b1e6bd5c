"""What is told of the moments of a step, beside the rows of steps themselves.

Rules of this file: types only. Whoever is told runs in the training thread.
"""

from __future__ import annotations

from typing import Protocol

from ..phases import PhaseWatch


class MemoryMoments(PhaseWatch, Protocol):
    """Writes rows of the memory at the moments of steps."""

    @property
    def is_wanted(self) -> bool:
        """Whether somebody has asked for rows of every step."""

    def step_began(self, step: int) -> bool:
        """A step begins; returns whether it gets rows, and what follows is to be told."""

    def batch_changed(self) -> None:
        """A micro-batch begins, or has ended."""

    def step_ended(self, took_ns: int) -> None:
        """The step has ended."""


class DeviceTimer(Protocol):
    """Times what a device does in a step."""

    def step_began(self, number: int) -> None:
        """A step begins."""

    def step_ended(self, took_ns: int) -> None:
        """The step has ended."""
