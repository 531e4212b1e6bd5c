"""How an ended process ended, as far as memory may have had to do with it.

Rules of this file: operator's side. What is certain is told apart from what is likely: a process
that the kernel kills leaves no word, so all there is are its last rows, and what the kernel still
says. `judge` is a pure function of what `ending_of` has read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..linux import process
from ..linux.cgroup import NEAR_LIMIT, find_cgroup
from ..messages.card import FAILED_START, TAKEN_OUT
from ..messages.frozen import dataclass
from ..rundir import numbers
from ..rundir.folders import ProcessFolder
from ..units import size
from .crashes import THREAD_EXCEPTION, describe, read_crash
from .error_files import written_error
from .launcher_logs import LauncherWord, launcher_word

ORDERLY = "It ended in an orderly way"
WORDLESS = "It ended without a word"
KILLED_BY_OOM = "Killed by the kernel OOM killer"
UNTOLD = "How it ended nothing tells"
"""How the sentences begin that say so."""
LIKELY = "Likely: "
"""What stands before a sentence that is not certain."""
_CGROUP_FULL, _MACHINE_FULL = "its cgroup reached its limit", "the machine's memory ran out"
NEAR_FULL = 0.95
"""A machine whose memory was at this part of all was close to it."""
_KILLED = re.compile(r"(Memory cgroup out|Out) of memory: Killed process (\d+) \(([^)]*)\)")
_KMSG_BYTES = 8192
_MOST_LINES = 20_000
_MOST_READS = 1_000_000
"""How often the kernel's log is read: a line each time, and it may grow meanwhile."""
LAST_MEMORY = "SELECT * FROM python.memory ORDER BY seq DESC LIMIT 200"
"""The newest rows of python.memory, with the columns that their record has."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a process ended.

    Attributes:
        certain: What is certain, one sentence each.
        likely: What is likely, and what it follows from.
        was_killed: Whether it ended without a word: by SIGKILL, or without Python's knowledge.
        by_memory: Whether it ran out of memory, for certain or likely.
        by_cgroup: Whether it was that of its cgroup.
        ended_ns: When, where an error of its own tells.
    """

    certain: tuple[str, ...]
    likely: tuple[str, ...] = ()
    was_killed: bool = False
    by_memory: bool = False
    by_cgroup: bool = False
    ended_ns: int | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is certain and what is likely, each told as what it is."""
        return (*self.certain, *(f"{LIKELY}{sentence}" for sentence in self.likely))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupNow:
    """The cgroup that this terminal is in.

    Attributes:
        limit: Bytes; None without one.
        kills: Processes that the kernel has killed in it.
    """

    limit: int | None
    kills: int


def ending_of(folder: ProcessFolder, rows: Sequence[Row]) -> Ending | None:
    """How a process ended; None while it runs.

    Args:
        rows: Its last rows of python.memory, the newest first.
    """
    if folder.is_alive():
        return None
    crash = read_crash(folder)
    if crash is not None and crash.kind != THREAD_EXCEPTION:
        return Ending(certain=(_sentence(describe(crash)),), ended_ns=crash.when_ns)
    error = written_error(folder)
    if error is not None:
        return Ending(certain=(_sentence(error.sentence()),), ended_ns=error.when_ns)
    word = launcher_word(folder)
    if not folder.socket.exists():
        return _left(folder, word)
    card = folder.read_card()
    if card is not None and card.boot_id != process.boot_id():
        return Ending(certain=("The machine has been started anew since.",), was_killed=True)
    if folder.is_foreign():
        where = "It belongs to another container: from here nothing tells whether it still runs."
        if not folder.may_run_elsewhere():
            where = "It ran in another container and has ended: how, nothing tells from here."
        return Ending(certain=(where,))
    # The kernel's log has the pids of no other namespace.
    is_here = card is not None and card.pid_namespace == numbers.FIRST
    kills = kernel_kills(read_kernel_log()) if is_here else []
    ending = judge(folder.pid, rows, kills, cgroup_now(), started_s=_started_s(folder))
    words = process.exit_words(folder.pid, folder.start_time)
    status = f"Its exit status, which its parent has not taken yet, is {words}."
    if words is None and word is None:
        return ending
    if words is None and word is not None:
        status = f"Its exit status, which its launcher wrote to {word.path}, is {word.words}."
    return replace(ending, certain=(ending.certain[0], status, *ending.certain[1:]))


def _left(folder: ProcessFolder, word: LauncherWord | None) -> Ending:
    """The end of a process whose agent was told of it: by `sys.exit(1)`, too, for all it knows.

    Or of one that had no agent at its end.
    """
    if word is None or word.code == 0:
        untold = _had_no_agent(folder)
        told = f"{ORDERLY}: its agent was told of the end" if untold is None else untold
        return Ending(certain=(f"{told}.",))
    left = f"It left by itself, without an exception that nobody caught, with {word.words}"
    return Ending(certain=(f"{left}, as its launcher wrote to {word.path}.",))


def _had_no_agent(folder: ProcessFolder) -> str | None:
    """A sentence about a process whose end no agent has seen, without its full stop."""
    card = folder.read_card()
    if card is None:
        return f"{UNTOLD}: it left no card that can be read"
    for problem in card.problems:
        if problem == TAKEN_OUT or problem.startswith(FAILED_START):
            words = process.exit_words(folder.pid, folder.start_time)
            if words is None:
                return f"{UNTOLD}: {problem.rstrip('.')}"
            told = ORDERLY if words == "exit code 0" else "It ended"
            return f"{told} with {words}: {problem.rstrip('.')}"
    return None


def judge(
    pid: int,
    rows: Sequence[Row],
    kills: Sequence[KernelKill],
    cgroup: CgroupNow | None,
    *,
    started_s: float = 0.0,
) -> Ending:
    """What can be said of a process that ended without a word.

    Args:
        rows: As in `ending_of`.
        kills: What the kernel's log still holds.
        cgroup: The terminal's own.
        started_s: When the process was started, in seconds since the machine was.
    """
    certain = [
        f"{WORDLESS}: no exception, no fatal signal and no orderly end is on record, as after"
        " SIGKILL (or os._exit, SIGTERM or SIGALRM without a handler, or the end of its container)."
    ]
    for kill in kills:
        if kill.pid == pid and kill.when_s >= started_s:
            why = _CGROUP_FULL if kill.is_cgroup else _MACHINE_FULL
            certain.append(f"{KILLED_BY_OOM}: {why} ({kill.line}).")
            return Ending(
                certain=tuple(certain), was_killed=True, by_memory=True, by_cgroup=kill.is_cgroup
            )
    full, counted = _near_limit(rows), _counted(rows, cgroup)
    if full and _has_killed_none(rows, cgroup):
        certain.append(
            f"Its cgroup was full, with {full}; but that of this terminal, which has the same"
            " limit, counts no kill."
        )
        full = ""
    in_cgroup = [f"{KILLED_BY_OOM}: {_CGROUP_FULL}. It held {full}."] if full else []
    in_cgroup += counted
    likely = (*in_cgroup, *_near_full(rows))
    return Ending(
        certain=tuple(certain),
        likely=likely,
        was_killed=True,
        by_memory=bool(likely),
        by_cgroup=bool(in_cgroup),
    )


def _has_killed_none(rows: Sequence[Row], cgroup: CgroupNow | None) -> bool:
    """Whether this terminal's cgroup has the same limit, and counts no kill since."""
    last = next((row for row in rows if row.get("cgroup_oom_kills") is not None), None)
    if last is None or cgroup is None or cgroup.limit is None:
        return False
    return cgroup.limit == last.get("cgroup_limit_bytes") and (
        cgroup.kills == last["cgroup_oom_kills"]
    )


def _near_limit(rows: Sequence[Row]) -> str:
    """What its cgroup held, where that was close to the limit.

    Files that are cached do not count, for they go first, where the record tells what they took.
    """
    last = next((row for row in rows if row.get("cgroup_bytes") is not None), None)
    if last is None or not last.get("cgroup_limit_bytes"):
        return ""
    limit, cached = last["cgroup_limit_bytes"], last.get("cgroup_cache_bytes")
    used = last["cgroup_bytes"] - (cached or 0)
    if used < NEAR_LIMIT * limit:
        return ""
    files = "with cached files" if cached is None else "without cached files"
    return (
        f"{size(used)} of {size(limit)}, {files}, in the last row on record (step {last['step']},"
        f" {last['phase']})"
    )


def _counted(rows: Sequence[Row], cgroup: CgroupNow | None) -> list[str]:
    """The kernel counts the processes that it has killed in a cgroup."""
    counts = [row for row in rows if row.get("cgroup_oom_kills") is not None]
    if not counts:
        return []
    first, last = counts[-1]["cgroup_oom_kills"], counts[0]["cgroup_oom_kills"]
    found = []
    if last > first:
        found.append(
            f"The kernel was killing processes of its cgroup: {last - first} in its last rows."
        )
    limit = counts[0].get("cgroup_limit_bytes")
    if cgroup is None or limit is None or cgroup.limit != limit:
        return found
    if cgroup.kills > last:
        found.append(
            f"The kernel has killed {cgroup.kills - last} more since the last row on record, if its"
            " cgroup is that of this terminal, which has the same limit."
        )
    return found


def _near_full(rows: Sequence[Row]) -> list[str]:
    """The machine itself had hardly any memory left."""
    last = next((row for row in rows if row.get("node_used_bytes") is not None), None)
    if last is None or not last.get("node_total_bytes"):
        return []
    used, total = last["node_used_bytes"], last["node_total_bytes"]
    if used < NEAR_FULL * total:
        return []
    return [
        f"{KILLED_BY_OOM}: {_MACHINE_FULL}. {size(used)} of"
        f" {size(total)} were in use in the last row on record."
    ]


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


def cgroup_now() -> CgroupNow | None:
    """The cgroup of this very process; None where it cannot be read."""
    paths = find_cgroup("self")
    kills = paths.oom_kills() if paths is not None else None
    return (
        CgroupNow(limit=paths.limit_bytes(), kills=kills) if paths and kills is not None else None
    )


def _started_s(folder: ProcessFolder) -> float:
    """When a process was started, in seconds since the machine was."""
    return folder.start_time / os.sysconf("SC_CLK_TCK")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
