"""Which of torch's modules for accelerators is meant: `torch.cuda`, ROCm's as well, or `torch.xpu`.

Rules of this file: a build of torch has one of them; the other is only a name in it. Asking starts
no device.
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
