"""Reads which gradient a parameter has, where another thread may be replacing it.

Rules of this file: runs in the training threads. Autograd's engine replaces gradients without the
interpreter lock, so that to read one meanwhile can end the process. A thread comes to its pass with
that lock, and says so first: between the look at who passes and the reading it cannot.
"""

from __future__ import annotations

from typing import Any

UNKNOWN: Any = object()
"""It cannot be read now."""


def gradient_beside(parameter: Any, passing: set[int]) -> Any:
    """The gradient of a parameter that another thread may train; `UNKNOWN` while any passes.

    Args:
        passing: See `Recording.passing`.
    """
    # One expression: the interpreter changes threads at calls and loops only.
    return parameter.grad if not passing else UNKNOWN
