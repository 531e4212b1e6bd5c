"""Who uses the processors of this machine, and how far a cgroup is held back.

Rules of this file: reads the kernel's files only; what is not told is None. A figure of now is the
difference of two looks, between which the caller waits.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import NamedTuple

from .cgroup import branches, number_after
from .kernel_files import read_text

_SCRIPTS = ("python", "ruby", "node", "perl", "bash", "sh")
"""Programs that say more by the script that they run."""


class Throttling(NamedTuple):
    """How often the kernel has held a cgroup back since it was made.

    Attributes:
        periods: Of how many periods, mostly 100 ms, in which one of its threads wanted to run,
        throttled: it has used up its quota in so many.
        processors: The quota: so many processors' time; None where that is not told.
    """

    periods: int
    throttled: int
    processors: float | None

    @property
    def share(self) -> float:
        """The part of the periods."""
        return self.throttled / self.periods if self.periods else 0.0


class User(NamedTuple):
    """A process that uses processors.

    Attributes:
        processors: How many of them it keeps busy.
        command: Its program, and the script that it runs.
    """

    pid: int
    processors: float
    command: str


def find_throttling(pid: int | str, *, proc: str = "/proc") -> Throttling | None:
    """That of the cgroups around a process that is held back most; None where none has a quota."""
    membership, mounts = read_text(f"{proc}/{pid}/cgroup"), read_text(f"{proc}/self/mountinfo")
    found = [
        throttling
        for is_new, folders in branches(membership, mounts, "cpu")
        for folder in folders
        if (throttling := _throttling(folder, is_new=is_new)) is not None
    ]
    return max(found, key=lambda one: one.throttled, default=None)


def _throttling(folder: str, *, is_new: bool) -> Throttling | None:
    text = read_text(f"{folder}/cpu.stat")
    periods, throttled = number_after("nr_periods", text), number_after("nr_throttled", text)
    if not periods or throttled is None:
        return None
    return Throttling(periods, throttled, _quota(folder, is_new=is_new))


def _quota(folder: str, *, is_new: bool) -> float | None:
    """How many processors' time a cgroup may use."""
    if is_new:
        words = read_text(f"{folder}/cpu.max").split()
    else:
        words = [read_text(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not int(words[1]):
        return None  # `max`, or -1
    return int(words[0]) / int(words[1])


def processor_times() -> dict[int, float]:
    """The processor time that each process on this machine has used, in seconds."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            fields = read_text(f"/proc/{name}/stat").rpartition(")")[2].split()
            if len(fields) > 12:
                found[int(name)] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def users_between(
    before: Mapping[int, float],
    after: Mapping[int, float],
    seconds: float,
    *,
    but: Collection[int],
) -> list[User]:
    """Who has used processors between two looks, the most first.

    Args:
        before: What `processor_times` gave then.
        but: Processes that are not told.
    """
    used = {
        pid: (time - before[pid]) / seconds
        for pid, time in after.items()
        if pid in before and pid not in but
    }
    return [
        User(pid, processors, _command(f"/proc/{pid}"))
        for pid, processors in sorted(used.items(), key=lambda item: -item[1])
        if processors > 0
    ]


def _command(folder: str) -> str:
    """The program of a process and its script: without arguments, which may have secrets."""
    words = [word for word in read_text(f"{folder}/cmdline").split("\0") if word]
    name = read_text(f"{folder}/comm").strip()
    if not words:
        return name or "?"
    program = words[0].rpartition("/")[2]
    if not program.startswith(_SCRIPTS):
        return program
    module = words[2] if len(words) > 2 and words[1] == "-m" else ""
    script = next((word for word in words[1:] if word.endswith((".py", ".sh"))), "")
    what = f"-m {module}" if module else script.rpartition("/")[2]
    return f"{program} {what}".strip()
