"""Has the kernel limit what a helper process may hold in memory, and have it die before others do.

Rules of this file: limits are set at the very start of a helper, before anything heavy is imported.
"""

from __future__ import annotations

import contextlib
import resource
import threading

LEAST_MIB = 192
_FILES_MIB = 64
"""What of the limit is left for the pages of libraries: the kernel's limit is on data alone."""
_UNTOUCHED_BYTES = 2 << 30
"""Address space beside what may be held: files that are mapped, what is reserved and never used."""
_STACK_BYTES = 8 << 20
"""What the stack of a thread takes of either, where `ulimit -s` would have it take more."""
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
    have_small_stacks()


def have_small_stacks() -> None:
    """Give threads to come stacks of the usual size, whatever `ulimit -s` says of them.

    A stack counts as a whole: with gigabytes for each, no thread could be started under a limit.
    Those of libraries, which ask for no size, have the default of the C library.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY or soft <= _STACK_BYTES:
        return
    threading.stack_size(_STACK_BYTES)
    with contextlib.suppress(ImportError, OSError, AttributeError):  # another C library
        import ctypes

        library, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
        library.pthread_attr_init(attributes)
        library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
        library.pthread_setattr_default_np(attributes)


def give_back_memory() -> None:
    """Have the C library give what was freed back to the machine; others than glibc do nothing."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
