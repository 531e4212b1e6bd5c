"""Finds the kernel's numbers of threads that only Python's numbers are known of.

Rules of this file: reads memory through /proc and writes none; the process is not stopped. Python's
number of a thread (`threading.get_ident`) is, in glibc and musl, the address of the C library's
record of it, and that record holds the kernel's number at a place that is the same for all
threads. Where it is, is found out by comparing, so nothing is assumed of the library's version.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Mapping

from .kernel_files import within
from .process import with_memory

_LIMIT_S = 1.0
"""How long the memory of a process is waited for, which may be made to keep us waiting."""
_RECORD_BYTES = 1024
"""How much of a record to look at: the number is at 720 in glibc on x86-64."""


def kernel_numbers(pid: int, idents: Collection[int]) -> dict[int, int]:
    """The number of each thread in its own namespace by Python's; empty where it cannot be told."""
    nothing: dict[int, bytes] = {}
    records = within(_LIMIT_S, lambda: _records(pid, idents), nothing)
    return match_records(records, outer_numbers(pid))


def _records(pid: int, idents: Collection[int]) -> dict[int, bytes]:
    """The beginning of each thread's record; none where the memory may not be read."""
    try:
        memory = os.open(f"/proc/{with_memory(pid)}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        return {ident: os.pread(memory, _RECORD_BYTES, ident) for ident in idents}
    except (OSError, OverflowError):
        return {}
    finally:
        os.close(memory)


def outer_numbers(pid: int) -> dict[int, int]:
    """The numbers of a process's threads out here by those that they have in its own namespace."""
    found = {}
    try:
        for name in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{name}/status", "rb") as file:
                numbers = next((line.split() for line in file if line.startswith(b"NSpid:")), [])
            if numbers:
                found[int(numbers[-1])] = int(name)
    except OSError:
        return found
    return found


def match_records(records: Mapping[int, bytes], tasks: Iterable[int]) -> dict[int, int]:
    """The thread of each record: at some place, all hold the number of a different thread."""
    known = set(tasks)
    if not records:
        return {}
    for place in range(0, min(map(len, records.values())) - 3, 4):
        found = {ident: struct.unpack_from("=i", data, place)[0] for ident, data in records.items()}
        if known.issuperset(found.values()) and len(set(found.values())) == len(found):
            return found
    return {}
