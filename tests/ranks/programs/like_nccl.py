"""One rank whose process group does as NCCL does, on a made-up CUDA; the device hangs in the end.

A call that is waited for at once gives nothing and returns as it is queued; what is gathered gives
one work for all. Prints ``queued`` where the device has done nothing of it yet, and goes on once
there is a file ``go``. Aborts its group once there is a file ``abort``.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tests.harness import fake_nccl
from tests.harness.fake_cuda import FakeCuda
from tests.harness.fake_torch import install

CUDA = FakeCuda(home=1)


if __name__ == "__main__":
    install(CUDA)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    fake_nccl.install(CUDA, allreduce=2.0, reduce=math.inf)
    store = TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    CUDA.start()
    here = torch.device("cuda", CUDA.home)
    dist.all_reduce(torch.ones(4))
    with dist.distributed_c10d._coalescing_manager(device=here, async_ops=True) as gathered:
        dist.broadcast(torch.ones(4), 0)
        dist.broadcast(torch.ones(2), 0)
    print("queued", flush=True)
    while not Path("go").exists():
        time.sleep(0.05)
    CUDA.advance(3.0)
    dist.barrier()
    assert all(work.is_completed() for work in gathered.works)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
        optimizer.step()
        CUDA.advance(5.0)
    dist.reduce(torch.ones(4), 0)
    print("ready", flush=True)
    while not Path("abort").exists():
        time.sleep(0.05)
    dist.distributed_c10d._abort_process_group()
    print("aborted", flush=True)
    time.sleep(600)
