"""Has gloo's process group, with one rank, do as NCCL's does, on a `FakeCuda`.

A call that is waited for at once gives nothing and returns as it is queued; what is gathered gives
one work for all.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.harness.fake_cuda import FakeCuda

_TAKES_S = 1e-3


def install(cuda: FakeCuda, **seconds: float) -> None:
    """Put it in the place of some methods of ``ProcessGroup``.

    Args:
        seconds: How long those of some names take on the device, where that is not a millisecond.
    """
    for name in ("allreduce", "broadcast", "reduce"):
        _put(cuda, name, seconds.get(name, _TAKES_S))
    group: Any = dist.ProcessGroup
    group.abort = lambda self: cuda.abort()
    group._start_coalescing = lambda self, device: None
    group._end_coalescing = lambda self, device: _Work(cuda)


class _Work(dist.Work):
    """What is given for what is not waited for at once."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        cuda.work(_TAKES_S)
        self._event: Any = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(cuda.home))

    def is_completed(self) -> bool:
        """Whether the device is past it."""
        return bool(self._event.query())

    def wait(self, timeout: Any = None) -> bool:
        """Have the current queue wait for it, which is the one that it is in."""
        return True


def _put(cuda: FakeCuda, name: str, seconds: float) -> None:
    """One method."""
    group: Any = dist.ProcessGroup
    original = getattr(group, name)

    def method(self: Any, *args: Any) -> Any:
        original(self, *args).wait()
        if getattr(args[-1], "asyncOp", False):
            return _Work(cuda)
        cuda.work(seconds)
        return None

    setattr(group, name, method)
