"""Leaves the program the descriptors that it may need.

Rules of this file: no torch; asked before the agent takes any.
"""

from __future__ import annotations

import os
import resource

from ..messages.limits import AGENT_FILES, SPARE_FILES


def require_room() -> None:
    """Make sure that the program keeps enough of them.

    Raises:
        OSError: It would not.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = most - len(os.listdir("/proc/thread-self/fd"))
    if most == resource.RLIM_INFINITY or free >= AGENT_FILES + SPARE_FILES:
        return
    raise OSError(
        f"of the {most} files that the process may have open only {max(free, 0)} are free; the"
        f" agent needs {AGENT_FILES} and leaves {SPARE_FILES} to the program: raise the limit, as"
        " `ulimit -n 1024` does"
    )
