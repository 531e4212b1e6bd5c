"""A job of two ranks, of which the last one ends while the other is in a collective.

The first rank waits for nothing: it has begun one with ``async_op``, whose work it keeps.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    print("ready", flush=True)
    if dist.get_rank():
        os._exit(0)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work is not None
    while not work.is_completed():
        time.sleep(0.05)
    time.sleep(0.1)  # who has looked just now does not look again
    dist.all_reduce(torch.ones(2), group=dist.new_group([0]))
    print("done", flush=True)
    time.sleep(600)
