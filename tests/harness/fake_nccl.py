"""Has gloo's process group, with one rank, do as NCCL's does, on a `FakeCuda`.

A call that is waited for at once gives nothing and returns as it is queued; what is gathered gives
one work for all. Messages go from the rank to itself, and only where they are gathered.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d

from tests.harness.fake_cuda import FakeCuda, FakeError

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
    messages = _Messages(cuda)
    for name in ("_start_coalescing", "_end_coalescing", "send", "recv"):
        setattr(group, name, _method(getattr(messages, name.strip("_"))))
    backend: Any = _c10d.Backend
    backend.supports_coalescing = property(lambda self: True)


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


def _method(function: Any) -> Any:
    """A function as a method of the group, which it does not need."""
    return lambda self, *args: function(*args)


class _Messages:
    """What is between the beginning and the end of a batch."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self._sent: list[torch.Tensor] | None = None
        self._received: list[torch.Tensor] = []

    def start_coalescing(self, device: object) -> None:
        """A batch begins."""
        self._sent = []

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> None:
        """One is sent."""
        if self._sent is None:
            raise FakeError("send to self is only supported in a batch")
        self._sent += tensors

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> None:
        """One is received."""
        if self._sent is None:
            raise FakeError("recv from self is only supported in a batch")
        self._received += tensors

    def end_coalescing(self, device: object) -> _Work:
        """The batch is queued."""
        for target, source in zip(self._received, self._sent or (), strict=True):
            target.copy_(source)
        self._sent, self._received = None, []
        return _Work(self._cuda)


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
