"""Numbers inside of functions that torch transforms, such as those given to `torch.func.grad`.

Rules of this file: runs in the training thread, as such a function's backward pass begins; changes
no tensor. What is computed here is computed outside of all transforms, which see nothing of it.
"""

from __future__ import annotations

import sys
from typing import Any

from ..accelerator import Accelerator
from ..torch_types import Tensor
from .number import Number, read_number


def is_last_pass() -> bool:
    """Whether the calling thread is inside of one `grad` only, so that its pass is the last one."""
    functorch: Any = sys.modules["torch"]._C._functorch
    stack = functorch.get_interpreter_stack() or ()
    return [level.key().name for level in stack].count("Grad") == 1


def is_mapped(tensor: Tensor) -> bool:
    """Whether it is one of `vmap`, which stands for many: none of them can be read by itself."""
    functorch: Any = sys.modules["torch"]._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def read_transformed(loss: Tensor, accelerator: Accelerator) -> Number | None:
    """The number in a loss; of a `vmap` over several models or samples their mean."""
    torch: Any = sys.modules["torch"]
    functorch, pyfunctorch = torch._C._functorch, sys.modules["torch._functorch.pyfunctorch"]
    while functorch.is_functorch_wrapped_tensor(loss):
        loss = functorch.get_unwrapped(loss)
    with pyfunctorch.temporarily_clear_interpreter_stack(), torch.no_grad():
        is_one = type(loss) is not torch.Tensor or loss.numel() == 1
        return read_number(loss.detach() if is_one else loss.detach().mean(), accelerator)
