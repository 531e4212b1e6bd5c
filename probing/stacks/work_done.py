"""What the kernel counts of a process's work: what its threads read and wrote, its children's time.

Rules of this file: reads only, never waits on the process. The agent uses it on itself, and whoever
looks from outside on another; two looks tell whether a process gets on that records nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from ..linux import process
from ..linux.kernel_files import read_text
from ..messages.common import ThreadBytes, WorkDone

_MOST_CHILDREN = 256


def work_of(pid: int, threads: Iterable[int]) -> WorkDone:
    """What a process has done so far.

    Args:
        threads: Those whose reading and writing counts: the job's own, as our questions make the
            agent's threads read, too.
    """
    of_children = Counter[str]()
    children = _descendants(pid)
    for child in children:
        of_children.update(_counts(read_text(f"/proc/{child}/io")))
    return WorkDone(
        time_s=time.monotonic(),
        threads=tuple(_bytes_of(pid, threads)),
        children_cpu_s=_children_cpu_s(pid, children),
        children_bytes=of_children["rchar"] + of_children["wchar"] if of_children else None,
    )


def _bytes_of(pid: int, threads: Iterable[int]) -> Iterator[ThreadBytes]:
    """What each thread has read and written, where the kernel tells."""
    for thread in threads:
        counts = _counts(read_text(f"/proc/{pid}/task/{thread}/io"))
        if counts:
            yield ThreadBytes(
                thread_id=thread, read_bytes=counts["rchar"], written_bytes=counts["wchar"]
            )


def _counts(text: str) -> dict[str, int]:
    """The lines of a file ``io``; none where it may not be read."""
    words = (line.partition(":") for line in text.splitlines())
    return {name: int(value) for name, _, value in words if value.strip().isdecimal()}


def _children_cpu_s(pid: int, children: Collection[int]) -> float | None:
    """Processor time of a process's descendants; None without any.

    What one of them has used goes to its parent as it ends, so that one after the other counts.
    """
    found = [fact for child in (pid, *children) if (fact := process.facts(child)) is not None]
    waited_s = sum(fact.waited_cpu_s for fact in found)
    running_s = sum(fact.cpu_s for fact in found[1:])
    return waited_s + running_s if children or waited_s else None


def _descendants(pid: int) -> set[int]:
    """The living descendants of a process, but for whoever asks."""
    found, left = set[int](), [pid]
    while left and len(found) < _MOST_CHILDREN:
        new = set(children_of(left.pop())) - found - {os.getpid()}
        found |= new
        left += new
    return found


def children_of(pid: int) -> list[int]:
    """The processes that the threads of one have started."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    words = (read_text(f"/proc/{pid}/task/{thread}/children").split() for thread in threads)
    return [int(word) for found in words for word in found]
