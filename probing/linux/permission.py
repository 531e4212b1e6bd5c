"""Why the kernel does not let this user look into a process, and what would change that.

Rules of this file: reads /proc; the process is not touched. Opening its memory asks the kernel the
very question that reading stacks and attaching depend on, and changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ..errors import NoPermission
from . import process

_CAP_SYS_PTRACE = 19


class Access(NamedTuple):
    """What the kernel decides by.

    Attributes:
        uid: Of the one who asks.
        owner: The user id of the process.
        may_trace: Whether the one who asks has the capability SYS_PTRACE.
        yama_scope: The kernel's ``kernel.yama.ptrace_scope``; None without Yama.
    """

    uid: int
    owner: int
    may_trace: bool
    yama_scope: int | None


def why_forbidden(pid: int) -> NoPermission | None:
    """The error to raise when the process may not be looked into; None when it may, or is gone."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        # The owner of /proc/PID is root for a process that does not let itself be looked into.
        uids = process.status(pid).get("Uid", "").split()
        access = Access(
            uid=os.getuid(),
            owner=int(uids[0]) if uids else os.getuid(),
            may_trace=_has_capability(),
            yama_scope=_yama_scope(),
        )
        return explain(pid, access)
    except OSError:
        return None
    return None


def explain(pid: int, access: Access) -> NoPermission:
    """The missing permission, and the command that grants it."""
    if access.yama_scope == 3:
        return NoPermission(
            f"kernel.yama.ptrace_scope is 3, so nobody may look into process {pid}",
            help="Only a reboot without that setting changes it. Start the job with PROBING=1: then"
            " its agent answers by itself.",
        )
    if access.uid == 0:
        return NoPermission(
            f"root lacks the capability SYS_PTRACE here, which looking into process {pid} needs",
            help="Start the container with `--cap-add SYS_PTRACE` (Kubernetes:"
            " `securityContext.capabilities.add: [SYS_PTRACE]`), or ask from the host.",
        )
    if access.owner != access.uid:
        return NoPermission(
            f"process {pid} belongs to user {access.owner}",
            help=f"Ask as that user, `sudo -u '#{access.owner}' probing ...`, or as root.",
        )
    if access.yama_scope == 2 or (access.yama_scope == 1 and not access.may_trace):
        return NoPermission(
            f"kernel.yama.ptrace_scope is {access.yama_scope}, so process {pid} may only be looked"
            f" into by {'root' if access.yama_scope == 2 else 'its parent, or root'}",
            help="Ask as root with `sudo probing ...`, or allow it to all of a user's own processes"
            " with `sudo sysctl kernel.yama.ptrace_scope=0`.",
        )
    return NoPermission(
        f"process {pid} does not let itself be looked into: it has changed its user or its"
        " capabilities, or asked for it (PR_SET_DUMPABLE)",
        help="Ask as root with `sudo probing ...`.",
    )


def _has_capability() -> bool:
    """Whether this process may trace any other."""
    capabilities = process.status(os.getpid()).get("CapEff", "0")
    return bool(int(capabilities, 16) >> _CAP_SYS_PTRACE & 1)


def _yama_scope() -> int | None:
    """The setting of Yama, where the kernel has it."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text("ascii"))
    except (OSError, ValueError):
        return None
