"""Who has started a process, by what the kernel and the run directory tell.

Rules of this file: reads cards and /proc, and asks nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..linux import process
from .folders import ProcessFolder, RunDirectory

_MOST = 64
"""Numbers are given anew while they are read: it ends even where they form a ring."""


def is_helper(folder: ProcessFolder, group_size: int) -> bool:
    """Whether this process was started, through whatever others, by a rank of another group.

    One of a group as large as that rank's own is its fellow: a script that is rank 0 may start the
    others itself.

    Args:
        folder: That of this process.
        group_size: How many are in its group.
    """
    directory = RunDirectory(folder.path.parent)
    for pid in ancestors(os.getpid()):
        start_time = process.start_time(pid)
        card = directory.folder_for(pid, start_time).read_card() if start_time is not None else None
        if card is None or card.rank is None or not card.has_trained:
            continue
        if card.world_size != group_size:
            return True
    return False


def ancestors(pid: int) -> Iterator[int]:
    """The process that started this one, or has taken it over, then that one's, and so on."""
    for _ in range(_MOST):
        facts = process.facts(pid)
        if facts is None or facts.parent == 0:
            return
        pid = facts.parent
        yield pid
