"""The processes that the kernel's OOM killer has killed, as far as its log still tells.

Rules of this file: operator's side. The log is read anew each time; where it may not be read, it
tells of none.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Sequence

from ..messages.frozen import dataclass

_KILLED = re.compile(r"(Memory cgroup out|Out) of memory: Killed process (\d+) \(([^)]*)\)")
_KMSG_BYTES = 8192
_MOST_LINES = 20_000
_MOST_READS = 1_000_000
"""How often the kernel's log is read: a line each time, and it may grow meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelKill:
    """A process killed by the kernel OOM killer.

    Attributes:
        is_cgroup: Whether it was the limit of a cgroup that was reached.
        when_s: When, in seconds since the machine was started.
        line: What the kernel wrote.
    """

    pid: int
    name: str
    is_cgroup: bool
    when_s: float
    line: str


def kernel_kills(lines: Sequence[str]) -> list[KernelKill]:
    """The processes that the kernel says its OOM killer has killed.

    Args:
        lines: As /dev/kmsg gives them: `priority,number,microseconds,flags;text`.
    """
    found = []
    for line in lines:
        head, _, text = line.partition(";")
        match = _KILLED.search(text)
        fields = head.split(",")
        if match is not None and len(fields) > 2 and fields[2].isdecimal():
            found.append(
                KernelKill(
                    pid=int(match[2]),
                    name=match[3],
                    is_cgroup=match[1].startswith("Memory cgroup"),
                    when_s=int(fields[2]) * 1e-6,
                    line=text.strip()[:200],
                )
            )
    return found


def logged_kills() -> list[KernelKill]:
    """What the kernel's log still holds of them."""
    return kernel_kills(read_kernel_log())


def read_kernel_log(path: str = "/dev/kmsg") -> list[str]:
    """The newest lines of the kernel's log, the oldest first; nothing where it may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    lines: deque[str] = deque(maxlen=_MOST_LINES)
    try:
        for _ in range(_MOST_READS):
            with contextlib.suppress(BrokenPipeError):  # lines were overwritten: it goes on behind
                data = os.read(fd, _KMSG_BYTES)
                if not data:
                    break
                lines += data.decode("utf-8", "replace").splitlines()
    except OSError:  # its end is reached
        pass
    finally:
        os.close(fd)
    return list(lines)
