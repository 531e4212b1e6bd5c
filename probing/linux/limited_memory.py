"""Has the kernel limit what a helper process may hold in memory, and have it die before others do.

Rules of this file: limits are set at the very start of a helper, before anything heavy is imported.
"""

from __future__ import annotations

import ctypes
import resource

LEAST_MIB = 192
_FILES_MIB = 64
"""What of the limit is left for the pages of libraries: the kernel's limit is on data alone."""
_UNTOUCHED_BYTES = 2 << 30
"""Address space beside what may be held: files that are mapped, what is reserved and never used."""
ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve address space by the gigabyte
    "MALLOC_ARENA_MAX": "2",
}
"""Variables without which libraries reserve more than they use."""


def limit_memory(memory_mib: int) -> None:
    """Let this process hold no more than that, and be the first to go where memory runs out."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    for kind, most in (
        (resource.RLIMIT_DATA, (max(memory_mib, LEAST_MIB) - _FILES_MIB) << 20),
        (resource.RLIMIT_AS, (memory_mib << 20) + _UNTOUCHED_BYTES),
    ):
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def give_back_memory() -> None:
    """Have the C library give what was freed back to the machine; others than glibc do nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
