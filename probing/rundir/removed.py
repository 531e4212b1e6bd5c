"""Run folders that were removed while their processes run, as a login's are with the last login.

Rules of this file: reads /proc; for who asks from outside.
"""

from __future__ import annotations

from pathlib import Path

from ..linux import process
from .numbers import folder_name, own_number

_END = ".ring (deleted)"
ANEW = (
    "Its agent begins a new one within a minute of running Python code, unless an action of `act`"
    " is in force, which ends with that. `probing attach {pid}` has it do so now. PROBING_HOME on a"
    " disk keeps it, or `loginctl enable-linger` where a logout removed it."
)


def removal(pid: int) -> str | None:
    """That the run folder of a process which has none was removed; None where it was not.

    Its agent has the rings mapped as long as it runs.
    """
    started = process.start_time(pid)
    if started is None:
        return None
    try:
        mapped = Path(f"/proc/{process.with_memory(pid)}/maps").read_text("utf-8", "replace")
    except OSError:
        return None
    name = folder_name(own_number(pid, started))
    for line in mapped.splitlines():
        if line.endswith(_END):
            folder = Path(line.split(None, 5)[5]).parent
            if folder.name == name:
                return f"its run folder {folder} was removed while it ran, with all it had recorded"
    return None
