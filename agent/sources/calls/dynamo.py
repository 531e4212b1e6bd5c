"""Keeps torch.compile from compiling code of ours where a compiled model calls modules one by one.

Rules of this file: asks torch's C extension only, never imports `torch._dynamo`; where a version of
torch does not offer it, nothing is done. The wrapper would otherwise be a frame like any other to
torch.compile, while torch's own ``Module.__call__`` is none: a model whose graph has breaks would
be cut in other pieces, with other results in the last bit, and one that was compiled before the
agent came would be compiled again. Tracing through the wrapper, inside a graph, is not affected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def never_inlined(function: _Function) -> _Function:
    """Have what is compiled call a function as it is, as does ``torch.compiler.disable``.

    Dynamo would trace into it, and warn of a clock that it does not know how to trace.
    """
    marked: Any = function
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = "it only records that an optimizer steps"
    return function


def leave_out(wrapper: CodeType, helpers: Iterable[CodeType] = ()) -> None:
    """Have frames run as they are: the wrapper's own, and the helpers' with all they call."""
    frames = _eval_frame()
    if hasattr(frames, "set_code_exec_strategy"):
        action, strategy = frames._FrameAction, frames._FrameExecStrategy
        frames.set_code_exec_strategy(wrapper, strategy(action.SKIP, action.DEFAULT))
    elif hasattr(frames, "skip_code"):
        frames.skip_code(wrapper)
    leave_out_with_calls(helpers)


def leave_out_with_calls(codes: Iterable[CodeType]) -> None:
    """Have frames run as they are, and all that they call."""
    frames = _eval_frame()
    if hasattr(frames, "set_code_exec_strategy"):
        action, strategy = frames._FrameAction, frames._FrameExecStrategy
        for code in codes:
            frames.set_code_exec_strategy(code, strategy(action.SKIP, action.SKIP))
    elif hasattr(frames, "skip_code"):
        for code in codes:
            frames.skip_code(code)


def _eval_frame() -> Any:
    """The part of torch that compiles frames; None where there is none."""
    return getattr(getattr(sys.modules["torch"]._C, "_dynamo", None), "eval_frame", None)
