"""Calls collectives of process groups that nobody has given a name, beside those of the world."""

from __future__ import annotations

import sys
import tempfile
import threading
from typing import Any

import torch
from torch import distributed as dist

OPTIONS: Any = sys.modules["torch._C._distributed_c10d"].AllreduceOptions


class Nameless(dist.ProcessGroup):
    """Has no name, no description and no backend."""


MAKE: Any = Nameless  # as C++ has it, of a rank and a size

where = f"file://{tempfile.mkdtemp()}/meeting"
dist.init_process_group("gloo", init_method=where, rank=0, world_size=1)
for _ in range(4):
    dist.all_reduce(torch.ones(2))
    group = MAKE(0, 1)
    try:
        group.allreduce([torch.ones(2)], OPTIONS())
    except RuntimeError as error:
        print(error, flush=True)
print("done", flush=True)
threading.Event().wait()
