"""Run folders that were removed while their processes run, as a login's are with the last login.

Rules of this file: looks at paths and /proc. A folder may have been made again since, by whoever
attaches; the agent's own files are there no more.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..linux import process
from .folders import ProcessFolder
from .numbers import folder_name, own_number

_END = ".ring (deleted)"
ANEW = (
    "Its agent begins a new one within a minute of running Python code, and `probing attach {pid}`"
    " has it do so now. PROBING_HOME on a disk keeps it, or `loginctl enable-linger` where a logout"
    " removed it."
)


def has_gone(folder: ProcessFolder) -> bool:
    """Whether the folder of an agent that runs was removed."""
    for path in (folder.held, folder.socket):
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        except OSError:  # that it cannot be looked at is no sign that it has gone
            return False
        return False
    return True


def removal(pid: int) -> str | None:
    """That the run folder of a process which has none was removed; None where it was not.

    Its agent has the rings mapped as long as it runs.
    """
    started = process.start_time(pid)
    if started is None:
        return None
    name = folder_name(own_number(pid, started))
    for line in process.mapped(pid).splitlines():
        if line.endswith(_END):
            folder = Path(line.split(None, 5)[5]).parent
            if folder.name == name:
                return f"its run folder {folder} was removed while it ran, with all it had recorded"
    return None
