"""Which exceptions are out-of-memory errors, and what they say.

Rules of this file: pure; runs in the training threads, perhaps with hardly any memory left. Runs no
code of the exception's own, changes nothing of it and keeps it nowhere. Only what certainly is such
an error is taken for one.
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from ..accelerator import out_of_memory_error

_LONGEST = 300
# The patterns are compiled when they are first used, which most processes never do.
_AMOUNT = r"([\d.]+) (bytes|[KMGT]iB)"
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_HOST_TEXT = "DefaultCPUAllocator: "
_HOST = r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"
_HOST_REQUEST = r"you tried to allocate (\d+) bytes"
_DEVICE_TEXTS = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "HIP error: out of memory",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "Cuda failure 'out of memory'",
    "Cuda failure 2 'out of memory'",
)
"""What the driver and its libraries say, whose memory torch's allocator does not hand out."""
_ASKED = rf"(?:Tried|Unable) to allocate {_AMOUNT}"
_TOTAL = rf"total capacity of {_AMOUNT}"
_FREE = rf"of which {_AMOUNT} is free"
_ALLOCATED = rf"Of the allocated memory {_AMOUNT} is allocated by PyTorch"
_UNUSED = rf"and {_AMOUNT} is reserved by PyTorch but unallocated"
_DEVICE = r"\bGPU (\d+)(?: has|;)"


class OomError(NamedTuple):
    """What an out-of-memory error says of itself; None for what it does not.

    Attributes:
        device_index: The number of the device.
        is_host: Whether it is the memory of the host that was wanting.
        text: Its class and first line.
    """

    is_host: bool
    text: str
    requested: int | None = None
    device_index: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None


def read_oom(error: BaseException) -> OomError | None:
    """What an out-of-memory error says; None for any other exception."""
    if not isinstance(error, RuntimeError | MemoryError | OSError):
        return None
    message = _message(error)
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        return OomError(is_host=True, text=_shown(error, message), requested=_of(_ASKED, message))
    if _is_of_device(error, message):
        return _read_device(error, message)
    if isinstance(error, RuntimeError) and _HOST_TEXT in message and re.search(_HOST, message):
        found = re.search(_HOST_REQUEST, message)
        requested = int(found[1]) if found else None
        return OomError(is_host=True, text=_shown(error, message), requested=requested)
    return None


def _is_of_device(error: BaseException, message: str) -> bool:
    """Whether it is a device's memory that is wanting."""
    kind = out_of_memory_error()
    if isinstance(kind, type) and isinstance(error, kind):
        return True
    return isinstance(error, RuntimeError) and any(text in message for text in _DEVICE_TEXTS)


def _read_device(error: BaseException, message: str) -> OomError:
    """What torch's message says about the device."""
    allocated, unused = _of(_ALLOCATED, message), _of(_UNUSED, message)
    reserved = allocated + unused if allocated is not None and unused is not None else None
    found = re.search(_DEVICE, message)
    return OomError(
        is_host=False,
        text=_shown(error, message),
        requested=_of(_ASKED, message),
        device_index=int(found[1]) if found else None,
        total=_of(_TOTAL, message),
        free=_of(_FREE, message),
        allocated=allocated,
        reserved=reserved,
    )


def _of(pattern: str, message: str) -> int | None:
    """The bytes that a message speaks of; it rounds them to two digits behind the point."""
    found = re.search(pattern, message)
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


def _message(error: BaseException) -> str:
    """What it says, without asking its own `__str__`; numpy's error has no words, but a size."""
    args = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    words = [arg for arg in args if type(arg) is str]
    if not words and type(error).__name__ == "_ArrayMemoryError":
        return str(error)
    return words[0] if words else ""


def _shown(error: BaseException, message: str) -> str:
    """Its class and first line."""
    name = type(error).__name__
    first = message.strip().partition("\n")[0][:_LONGEST]
    return f"{name}: {first}" if first else name
