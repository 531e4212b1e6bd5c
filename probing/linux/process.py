"""Facts about a process, as the kernel tells them under /proc.

Rules of this file: reads only, never waits on the process, never needs its help. A process
that is gone gives None, not an error.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import stat
import time
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from .kernel_files import read_text, within

_LIMIT_S = 1.0
"""How long the memory of another user's process is waited for."""
_ENDED = "ZX"
_EXIT = 49
"""Which field behind the name is the exit status."""


class ThreadFacts(NamedTuple):
    """What the kernel tells of one thread.

    Attributes:
        thread_id: Its number.
        state: The letter of its state.
        cpu_s: Processor time it has used, in seconds.
        name: What the kernel calls it; often the program's name.
        wchan: The function of the kernel that it sleeps in; None where unknown or awake.
        call: The system call it is in; None where unknown or in none. See `SystemCall`.
        switches: How often it has gone to sleep so far; None where unknown.
        ready_s: How long it has waited for a processor, ready to run; None where unknown.
    """

    thread_id: int
    state: str
    cpu_s: float
    name: str = ""
    wchan: str | None = None
    call: SystemCall | None = None
    switches: int | None = None
    ready_s: float | None = None


class SystemCall(NamedTuple):
    """The system call that a thread is in.

    Attributes:
        name: As its manual page calls it; ``syscall 999`` where it is none of `syscalls`.
        file: What its first argument is a descriptor of: a path, or ``pipe:[7]``; ``no file``
            for a select on none, which is a way to sleep.
        has_limit: Whether a wait for a futex ends by itself after some time.
    """

    name: str
    file: str | None = None
    has_limit: bool = False


class User(NamedTuple):
    """Whose a process is, as far as files are concerned.

    Attributes:
        groups: The supplementary ones.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]


class ProcessFacts(NamedTuple):
    """What the kernel tells of a whole process.

    Attributes:
        state: The letter of its main thread's state.
        parent: The process that started it, or has taken it over.
        cpu_s: Processor time that all its threads have used, in seconds.
        waited_cpu_s: That of the children whose end it has taken note of, and of theirs.
        resident_bytes: Its resident set, what it shares with others included.
    """

    state: str
    parent: int
    cpu_s: float
    waited_cpu_s: float
    resident_bytes: int


def facts(pid: int) -> ProcessFacts | None:
    """What the kernel tells of a process; None when it is gone."""
    fields = _stat_fields(f"/proc/{pid}/stat")
    if fields is None:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessFacts(
        state=fields[0],
        parent=int(fields[1]),
        cpu_s=(int(fields[11]) + int(fields[12])) / ticks,
        waited_cpu_s=(int(fields[13]) + int(fields[14])) / ticks,
        resident_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    )


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process started; None when there is none.

    A zombie counts as ended, unless only its main thread has.
    """
    fields = _stat_fields(f"/proc/{pid}/stat")
    if fields is None or (fields[0] in _ENDED and living_thread(pid) is None):
        return None
    return int(fields[19])


def age_s(pid: int) -> float | None:
    """For how long the process has run; None when there is none."""
    started = start_time(pid)
    if started is None:
        return None
    began_s: float = started / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def living_thread(pid: int) -> int | None:
    """A thread that runs in a process whose main thread has ended; None in any other process.

    Such a process has its memory and its files under the numbers of its threads alone.
    """
    fields = _stat_fields(f"/proc/{pid}/stat")
    if fields is None or fields[0] not in _ENDED:
        return None
    try:
        numbers = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return None
    for number in numbers:
        found = _stat_fields(f"/proc/{pid}/task/{number}/stat")
        if found is not None and found[0] not in _ENDED:
            return number
    return None


def with_memory(pid: int) -> int:
    """The number under which the kernel shows a process's memory, files and environment."""
    return living_thread(pid) or pid


def exit_words(pid: int, started: int) -> str | None:
    """How a process has ended that its parent has not asked about; None where that is not known.

    That is ``exit code 3`` or ``signal SIGKILL``.
    """
    fields = _stat_fields(f"/proc/{pid}/stat")
    if fields is None or fields[0] != "Z" or int(fields[19]) != started or len(fields) <= _EXIT:
        return None
    status = int(fields[_EXIT])
    number = status & 0x7F
    return signal_words(number) if number else f"exit code {status >> 8}"


def signal_words(number: int) -> str:
    """A signal: ``signal SIGKILL``."""
    known = number in signal.valid_signals()
    return f"signal {signal.Signals(number).name if known else number}"


def error_log(pid: int) -> str | None:
    """The regular file that the standard error of a process goes to; None where it is none."""
    link = f"/proc/{pid}/fd/2"
    try:
        path, facts = os.readlink(link), os.stat(link)
        same = os.stat(path)
    except OSError:  # it may not be looked at, has gone, or is no file, or that has been removed
        return None
    is_file = stat.S_ISREG(facts.st_mode) and os.path.samestat(facts, same)
    return path if is_file else None


def is_alive(pid: int, started: int) -> bool:
    """Whether that very process still runs, rather than another with a recycled pid."""
    return start_time(pid) == started


def state(pid: int) -> str | None:
    """The state letter of the process's main thread."""
    fields = _stat_fields(f"/proc/{pid}/stat")
    return fields[0] if fields else None


def threads(pid: int, only: Container[int] | None = None) -> dict[int, ThreadFacts]:
    """The threads of a process by their kernel number; empty when it is gone.

    Args:
        only: The numbers to look at; all of them where it is left out.
    """
    found = {}
    try:
        numbers = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return {}
    tick = os.sysconf("SC_CLK_TCK")
    for number in sorted(numbers):
        if only is not None and number not in only:
            continue
        task = f"/proc/{pid}/task/{number}"
        fields = _stat_fields(f"{task}/stat")
        if fields is not None:
            found[number] = ThreadFacts(
                thread_id=number,
                state=fields[0],
                cpu_s=(int(fields[11]) + int(fields[12])) / tick,
                name=read_text(f"{task}/comm").rstrip("\n"),
                wchan=_wchan(read_text(f"{task}/wchan")),
                call=_system_call(pid, read_text(f"{task}/syscall").split()),
                switches=_switches(read_text(f"{task}/status")),
                ready_s=_ready_s(read_text(f"{task}/schedstat").split()),
            )
    return found


def processor_ns(pid: int) -> dict[int, int]:
    """How long each thread has used a processor so far, by its kernel number.

    Empty when it is gone, or where the kernel does not tell.
    """
    used = {}
    try:
        for name in os.listdir(f"/proc/{pid}/task"):
            words = read_text(f"/proc/{pid}/task/{name}/schedstat").split()
            if words:
                used[int(name)] = int(words[0])
    except OSError:
        return used
    return used


def _ready_s(fields: list[str]) -> float | None:
    """What the file ``schedstat`` tells of waiting for a processor, in seconds."""
    return int(fields[1]) / 1e9 if len(fields) > 1 else None


def _wchan(text: str) -> str | None:
    """The kernel's function, without what the compiler added to its name."""
    return None if text in {"", "0"} else text.partition(".")[0]


def _system_call(pid: int, fields: list[str]) -> SystemCall | None:
    """The call that a line of the file ``syscall`` describes: its number and arguments."""
    if len(fields) < 7 or fields[0] == "-1":  # the thread runs, or is stopped outside of any
        return None
    from . import syscalls  # not at the agent's start

    name = syscalls.name_of(int(fields[0]))
    first, fourth = int(fields[1], 16), int(fields[4], 16)
    file = _link(f"/proc/{pid}/fd/{first}") if name in syscalls.ON_DESCRIPTORS else None
    if name in {"select", "pselect6"} and first == 0:
        file = "no file"
    return SystemCall(name=name, file=file, has_limit=name == "futex" and fourth != 0)


def _switches(status: str) -> int | None:
    """The count of voluntary switches in a file ``status``."""
    _, found, rest = status.partition("\nvoluntary_ctxt_switches:")
    return int(rest.split(maxsplit=1)[0]) if found else None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def command(pid: int) -> tuple[str, ...]:
    """The command line; empty when it is gone or hidden."""
    data = _of_memory(pid, "cmdline")
    if not data:
        return ()
    return tuple([part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0")])


def owner(pid: int) -> int | None:
    """The user id of a process; that of its folder in /proc is root's where it hides its memory."""
    found = user(pid)
    return None if found is None else found.uid


def user(pid: int) -> User | None:
    """The user who started a process, whatever rights it has taken on since; None when gone."""
    lines = status(pid)
    uid, gid, groups = (lines.get(name, "").split() for name in ("Uid", "Gid", "Groups"))
    if not (uid and gid):
        return None
    return User(uid=int(uid[0]), gid=int(gid[0]), groups=tuple([int(group) for group in groups]))


def status(pid: int) -> dict[str, str]:
    """The lines of the status file by name, such as ``Uid`` and ``TracerPid``; empty when gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (x.partition(":") for x in text.split("\n"))}


def file_limit(pid: int) -> int | None:
    """How many files a process may have open; None when there is no limit, or it is hidden."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text("ascii")
    except OSError:
        return None
    found = re.search(r"^Max open files +(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty when hidden."""
    words = (
        part.decode("utf-8", "replace").partition("=")
        for part in _of_memory(pid, "environ").split(b"\0")
    )
    return {name: value for name, _, value in words if name}


def has_library(pid: int, name: str) -> bool:
    """Whether the process has loaded a library whose file name begins so."""
    try:
        return f"/{name}" in Path(f"/proc/{with_memory(pid)}/maps").read_text("utf-8", "replace")
    except OSError:
        return False


def is_python(pid: int) -> bool:
    """Whether the process runs a Python interpreter, by its executable or the code it has loaded.

    Where those are hidden, the name that it was started by must do.
    """
    try:
        folder = f"/proc/{with_memory(pid)}"
        if "python" in os.path.basename(os.readlink(f"{folder}/exe")):
            return True
        lines = Path(f"{folder}/maps").read_text("utf-8", "replace").splitlines()
    except PermissionError:
        return "python" in os.path.basename((*command(pid), "")[0])
    except OSError:
        return False
    code = (line for line in lines if "x" in line.split(None, 2)[1])
    return any(os.path.basename(line).startswith(("python", "libpython")) for line in code)


@functools.cache
def boot_id() -> str:
    """What tells this boot of the machine from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()


def pid_namespace(pid: int | str = "self") -> int:
    """The inode of a process's pid namespace, of this one's own; 0 where that is not told."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def _of_memory(pid: int, name: str) -> bytes:
    """One of the files that the kernel reads from the memory of a process; empty when hidden.

    Only root reads that of others, who may keep it waiting.
    """

    def read() -> bytes:
        try:
            return Path(f"/proc/{with_memory(pid)}/{name}").read_bytes()
        except OSError:
            return b""

    is_trusted = pid == os.getpid() or os.geteuid() != 0
    return read() if is_trusted else within(_LIMIT_S, read, b"")


def _stat_fields(path: str) -> list[str] | None:
    """The fields of a stat file behind the command name, which may hold anything."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    return data[data.rfind(b")") + 2 :].decode("ascii", "replace").split()
