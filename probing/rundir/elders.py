"""Who has started a process, by what the kernel and the run directory tell.

Rules of this file: reads cards and /proc, and asks nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..linux import process
from ..safety.off_switch import program_of
from .folders import ProcessFolder, RunDirectory

_MULTIPROCESSING = "multiprocessing"
"""In the code that it has its children and fork servers begin with."""
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


def is_given_by_launcher(name: str, value: str) -> bool:
    """Whether a variable comes from the launcher, a Python program, that has started this process.

    Whoever started this process may have it from there: a rank, or a shell of one. So may a rank
    that multiprocessing has made, to which it came later than what the kernel shows. One that was
    left behind by who started it is still in the session of its rank.
    """
    given, parent, session = os.fsencode(f"{name}={value}"), os.getppid(), os.getsid(0)
    if session != os.getpid() and given in _words(session, "environ"):
        return False
    option, code = program_of([os.fsdecode(word) for word in _words(parent, "cmdline")])
    if not process.is_python(parent) or (option == "c" and _MULTIPROCESSING in code):
        return False
    environment = _words(parent, "environ")
    return bool(environment) and given not in environment


def _words(pid: int, name: str) -> list[bytes]:
    """What one of the kernel's files says of a process of this one's user; nothing where hidden."""
    try:
        return [word for word in Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0") if word]
    except OSError:
        return []


def ancestors(pid: int) -> Iterator[int]:
    """The process that started this one, or has taken it over, then that one's, and so on."""
    for _ in range(_MOST):
        facts = process.facts(pid)
        if facts is None or facts.parent == 0:
            return
        pid = facts.parent
        yield pid
