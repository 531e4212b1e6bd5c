"""The few types of torch that annotations of this room name.

They are torch's own, so that the type check compares what we use with torch itself, which protocols
of ours would only repeat. While the program runs they are None: the training alone imports torch,
and whoever asks `isinstance` of one here fails at once; ask `sys.modules["torch"]` for the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.autograd.graph import Node
    from torch.cuda import CUDAGraph
    from torch.distributed import ProcessGroup, Work
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    Device = torch.device
    Dtype = torch.dtype
else:
    CUDAGraph = Device = Dtype = LRScheduler = Module = Node = None
    Optimizer = ProcessGroup = Tensor = Work = None

__all__ = [
    "CUDAGraph",
    "Device",
    "Dtype",
    "LRScheduler",
    "Module",
    "Node",
    "Optimizer",
    "ProcessGroup",
    "Tensor",
    "Work",
]
