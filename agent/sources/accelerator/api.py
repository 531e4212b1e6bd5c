"""Which of torch's modules for accelerators is meant: `torch.cuda`, ROCm's as well, or `torch.xpu`.

Rules of this file: a build of torch has one of them; the other is only a name in it. What both have
by other names is here, too. Asking starts no device.
"""

from __future__ import annotations

import sys
from typing import Any


def device_api() -> Any:
    """The module of the devices that this build of torch is for."""
    torch = sys.modules["torch"]
    return torch.xpu if getattr(torch._C, "_has_xpu", False) else torch.cuda


def device_kind() -> str:
    """What torch calls such devices; ROCm's are ``cuda`` to it."""
    return "xpu" if getattr(sys.modules["torch"]._C, "_has_xpu", False) else "cuda"


def is_in_use() -> bool:
    """Whether the process computes with an accelerator; asking does not begin to use it."""
    in_use: bool = device_api().is_initialized()
    return in_use


def out_of_memory_error() -> Any:
    """The class of exceptions by which torch says that a device's memory is wanting."""
    torch: Any = sys.modules.get("torch")
    kind = getattr(torch, "OutOfMemoryError", None)
    return kind or getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)


def graph_class() -> Any:
    """The class of graphs of captured work; None where this torch has none for such devices."""
    api = device_api()
    return getattr(api, "XPUGraph", None) if device_kind() == "xpu" else api.CUDAGraph


def profiler_activity() -> str | None:
    """What torch's profiler calls work of the device in use; None where none is."""
    return device_kind().upper() if is_in_use() else None


def maker() -> str | None:
    """Who makes them, where that is not NVIDIA."""
    if device_kind() == "xpu":
        return "Intel"
    return "AMD" if getattr(sys.modules["torch"].version, "hip", None) else None


def number_of(stream: Any) -> int:
    """What tells a queue from the others of its device."""
    number: int = stream.sycl_queue if device_kind() == "xpu" else stream.cuda_stream
    return number


def is_stream_capturing(api: Any) -> bool:
    """Whether work that this thread queues is captured for a graph; an older torch has none."""
    ask = getattr(api, "is_current_stream_capturing", None)
    return bool(ask is not None and ask())
