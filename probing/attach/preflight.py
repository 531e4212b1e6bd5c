"""What stands in the way of attaching to a process, found out before it is touched.

Rules of this file: reads /proc and the head of files; stops nobody, changes nothing. The first
obstacle is told, with what removes it.
"""

from __future__ import annotations

import os
import time

from ..errors import AttachRefused, NoSuchProcess, ProbingError
from ..linux import process
from ..linux.permission import why_forbidden
from ..messages.limits import AGENT_FILES, SPARE_FILES
from ..rundir import contained
from ..safety import off_switch

OPEN_IT = (
    "Start it without that, if it may be looked into. `backtrace` works from outside all the same."
)
_BRIEF_S = 0.3
_POLL_S = 0.005


def find_obstacle(pid: int) -> ProbingError | None:
    """The error to raise instead of attaching; None when nothing is known to prevent it."""
    if process.start_time(pid) is None:
        return NoSuchProcess(str(pid))
    if pid == os.getpid():
        return AttachRefused(pid, "it is this very process", help="Call probing.start() instead.")
    if not process.is_python(pid):
        return AttachRefused(
            pid,
            "it is not a Python process",
            help="`probing list --all` shows the Python processes.",
        )
    return (
        why_forbidden(pid)
        or _closed(pid)
        or _in_another_world(pid)
        or _filtered(pid)
        or _short_of_files(pid)
        or _not_running(pid)
    )


def _closed(pid: int) -> ProbingError | None:
    """The obstacle of a process that was started so that nobody comes in."""
    options = off_switch.x_options(process.command(pid))
    why = off_switch.why_closed(process.environment(pid), options)
    return AttachRefused(pid, why, help=OPEN_IT) if why is not None else None


def _in_another_world(pid: int) -> ProbingError | None:
    """The obstacle of a process in a container that is not ours."""
    if not contained.is_in_another(pid):
        return None
    return AttachRefused(
        pid,
        "it runs in a container, whose files and process numbers are not those of this shell",
        help="Attach from inside, where probing must be installed:"
        f" `{contained.way_to_attach(pid)}`, or the same by `docker exec` or `kubectl exec`.",
    )


def _filtered(pid: int) -> ProbingError | None:
    """The obstacle of a process that has given up system calls which we still have.

    A call that its filter does not know may end it.
    """
    ours = _filters(os.getpid())
    if max(map(_filters, process.threads(pid)), default=0) <= ours:
        return None
    return AttachRefused(
        pid,
        "a filter of system calls (seccomp) is in force in it that is not in this shell, and may"
        " end it at a call of the agent",
        help="`backtrace` works from outside. From a shell under the same filter attaching works.",
    )


def _filters(thread_id: int) -> int:
    """How many such filters are in force; 1 for any number before Linux 5.9, which has no count."""
    told = process.status(thread_id)
    return int(told.get("Seccomp_filters", told.get("Seccomp") == "2"))


def _short_of_files(pid: int) -> ProbingError | None:
    """The obstacle of a process that may hardly open any more files."""
    limit = process.file_limit(pid)
    try:
        used = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    if limit is None or limit - used >= AGENT_FILES + SPARE_FILES:
        return None
    return AttachRefused(
        pid,
        f"of the {limit} files that it may have open only {max(0, limit - used)} are free; the"
        f" agent needs {AGENT_FILES} and leaves {SPARE_FILES} to the program",
        help=f"`prlimit --pid {pid} --nofile=1024` raises the limit while it runs, if that is below"
        " its hard limit.",
    )


def _not_running(pid: int) -> ProbingError | None:
    """The obstacle of a process that is stopped, traced, or stuck in the kernel."""
    tracer = process.status(pid).get("TracerPid", "0")
    if tracer not in ("", "0"):
        name = os.path.basename((process.command(int(tracer)) or ("",))[0]) or "a debugger"
        return AttachRefused(
            pid,
            f"process {tracer} ({name}) is tracing it, and a process has one tracer at most",
            help="Try again when that has let it go.",
        )
    facts = process.threads(pid)
    if any(fact.state in "Tt" for fact in facts.values()):
        return AttachRefused(
            pid,
            "it is stopped by a signal",
            help=f"`kill -CONT {pid}` lets it go on. `backtrace` works while it is stopped.",
        )
    thread_id = _stuck_in_kernel(pid, facts)
    if thread_id is not None:
        return AttachRefused(
            pid,
            f"its thread {thread_id} is in an uninterruptible wait of the kernel, which"
            " nothing can borrow it from, and which whoever stops it would wait for",
            help="`backtrace` works meanwhile. The wait ends with what it waits for: usually a"
            " file system or a device.",
        )
    return None


def _stuck_in_kernel(pid: int, facts: dict[int, process.ThreadFacts]) -> int | None:
    """A thread in an uninterruptible wait that lasts.

    Most do not: reading a file takes one, and so does starting a command.
    """
    waits = {number: fact for number, fact in facts.items() if fact.state == "D"}
    end = time.monotonic() + _BRIEF_S
    while waits:
        if time.monotonic() > end:
            return min(waits)
        time.sleep(_POLL_S)
        waits = {
            number: fact
            for number, fact in process.threads(pid, waits).items()
            if fact.state == "D" and fact.switches == waits[number].switches
        }
    return None
