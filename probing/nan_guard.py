"""The exception that `act nan-guard raise` ends a training with.

Rules of this file: standard library only; it is raised in the user's own code.
"""

from __future__ import annotations


class NonFiniteStep(FloatingPointError):
    """The loss or the gradients of a step are not finite; the optimizer has not stepped."""
