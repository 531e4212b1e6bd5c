"""Keeps torch.compile from compiling code of ours where a compiled model calls modules one by one.

Rules of this file: asks torch's C extension only, never imports `torch._dynamo`; where a version of
torch does not offer it, nothing is done. The wrapper would otherwise be a frame like any other to
torch.compile, while torch's own ``Module.__call__`` is none: a model whose graph has breaks would
be cut in other pieces, with other results in the last bit, and one that was compiled before the
agent came would be compiled again. Tracing through the wrapper, inside a graph, is not affected.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any


def leave_out(wrapper: CodeType, helpers: Iterable[CodeType] = ()) -> None:
    """Have frames run as they are: the wrapper's own, and the helpers' with all they call."""
    frames: Any = getattr(getattr(sys.modules["torch"]._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        action, strategy = frames._FrameAction, frames._FrameExecStrategy
        frames.set_code_exec_strategy(wrapper, strategy(action.SKIP, action.DEFAULT))
        for code in helpers:
            frames.set_code_exec_strategy(code, strategy(action.SKIP, action.SKIP))
    elif hasattr(frames, "skip_code"):
        for code in (wrapper, *helpers):
            frames.skip_code(code)
