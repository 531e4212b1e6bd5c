"""How much a model is given at once.

Rules of this file: looks at shapes and dtypes only, never at data, and keeps nothing. The C part
has a `size_of`, too; what is meant is said here, and a test compares the two.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ....ring.native import IN_C

_MATRIX = 2
Size = tuple[tuple[int, ...] | None, int | None, int | None]


def size_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Size:
    """The first tensor in the arguments of a root module: its sizes, samples and tokens.

    Returns:
        All its dimensions, the first of them, and, where it is a matrix of integers (shape
        ``(batch, length)``), how many elements it has; None for what cannot be told so, and for
        all of it while a call is traced: sizes are tensors then, and reading them is traced.
    """
    torch: Any = sys.modules["torch"]
    core, tensor = torch._C, torch.Tensor
    if core._get_tracing_state() is not None:
        return None, None, None
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) is tensor:
            if value.is_nested:  # it has no sizes, and asking for them raises
                return None, None, None
            shape = value.shape
            if not shape:
                return shape, None, None
            is_tokens = len(shape) == _MATRIX and not (
                value.dtype.is_floating_point or value.dtype.is_complex
            )
            samples, tokens = shape[0], value.numel() if is_tokens else None
            if core._functorch.peek_interpreter_stack() is None:
                return shape, samples, tokens
            at_once = _mapped(value, core._functorch)
            return shape, samples * at_once, None if tokens is None else tokens * at_once
    return None, None, None


def _mapped(tensor: Any, functorch: Any) -> int:
    """For how many at once `vmap` calls the model with a tensor."""
    count = 1
    while functorch.is_functorch_wrapped_tensor(tensor):
        inner = functorch.get_unwrapped(tensor)
        if functorch.is_batchedtensor(tensor):
            count *= inner.shape[functorch.maybe_get_bdim(tensor)]
        tensor = inner
    return count


def new_size_of(*, in_c: bool = True) -> Callable[[tuple[Any, ...], dict[str, Any]], Size]:
    """`size_of`: that of the C part, where it was built and may be used."""
    if not in_c or IN_C is None:
        return size_of
    torch: Any = sys.modules["torch"]
    core, functorch = torch._C, torch._C._functorch
    stack = functorch.peek_interpreter_stack
    mapped = functools.partial(_mapped, functorch=functorch)
    return functools.partial(IN_C.size_of, torch.Tensor, core._get_tracing_state, stack, mapped)
