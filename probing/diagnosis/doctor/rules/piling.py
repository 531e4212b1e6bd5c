"""Rules about what is started or made again and again, and never ended.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. It is told by
when each was made: things that all came at the start are a pool, things that came one by one all
along are a leak.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ....linux import process
from ....linux.host_memory import descendants, sql_workers
from ....units import size
from ...leaks.history import MIB
from ..facts import Facts
from ..findings import Rule, Sign
from ..first_look import Open, open_files
from ..not_looked_at import NotLookedAt

_SAME_FILE = 20
_FEW_TIMES = 2
_SHARDS = (
    "each is another file, which can be read: parts of a data set that stay open look the same"
)
_SHARED_MODEL = "a model with `share_memory()` keeps one for each parameter, and looks the same"
_SHARED = "/dev/shm"  # noqa: S108 - looked at, never written to
_NO_FILES = ("/dev/", "/proc")
"""Devices are as often open as their driver wants: CUDA opens its own 25 times."""
_SAME_THREADS = 6
_MANY_CHILDREN = 6
_SHM_FILES = 10
_SHM_BYTES = 2 * MIB
_SPREAD = 0.3
_MOMENTS = 20
_LEAST_MOMENTS = 3
"""Of the twentieths of a process's life, in so many something came at least."""
_POOLS = re.compile(r"ThreadPoolExecutor|pin_memory|MainThread|asyncio|^pt_|Dummy|^probing-")
_TICKS = os.sysconf("SC_CLK_TCK")
_RECORD = re.compile(r"/probing-\d+/|/\d+-\d+(-\d+)?/([^/]+\.(ring|json|txt)|held|names)$")
"""What probing keeps of processes, wherever their records are: it goes as they are pruned."""


def _descriptors(facts: Facts) -> Iterator[Sign]:
    """One file is open many times."""
    pid = facts.pid_here()
    limit = process.file_limit(pid)
    before, kinds = _kinds(facts.first.open_files), _kinds(_open_files(pid))
    found = [
        (_is_leak(files, before[kind], limit), files.total(), next(iter(files)).path)
        for kind, files in kinds.items() if files.total() >= _SAME_FILE
    ]  # fmt: skip
    if not found:
        return
    is_sure, number, name = max(found)
    shared = name.startswith(_SHARED)
    yield Sign(
        certainty="likely" if is_sure else "possible",
        summary=f"{number} files like {name} are open"
        + (": tensors in shared memory" if shared else "")
        + (" that nobody lets go of" if shared and is_sure else "")
        + (f"; the limit is {limit:,} open files" if limit else ""),
        evidence=(
            f"{sum(kind.total() for kind in kinds.values())} open files in all",
            *(() if is_sure else (_SHARED_MODEL if shared else _SHARDS,)),
        ),
        weight=0.4 if is_sure else 0.1,
        fix=("" if is_sure else "Nothing, if their number stays. ")
        + "Let go of tensors in shared memory once they were taken; end the queue that nobody"
        " reads." if shared else "",
    )  # fmt: skip


def _kinds(links: Iterable[Open]) -> defaultdict[str, Counter[Open]]:
    """How often each file is open, by what files that are named alike have in common."""
    kinds: defaultdict[str, Counter[Open]] = defaultdict(Counter)
    for one in links:
        path = one.path
        if path.startswith(_SHARED) or (path.startswith("/") and not path.startswith(_NO_FILES)):
            stem = re.sub(r"\d+", "#", re.sub(r"_[a-z0-9_]{6,}|[0-9a-f]{8,}", "#", path))
            kinds[stem][one] += 1
    return kinds


def _is_leak(files: Counter[Open], before: Counter[Open], limit: int | None) -> bool:
    """Whether files that are named alike are more than some that are meant to stay open.

    Of the parts of a data set most can be read, hardly any is open twice, their number stays, and
    is no great part of what may be open. So it is with the parameters of a model in shared memory.

    Args:
        before: Those that were open at the first look.
    """
    few = sum(times for one, times in files.items() if times <= _FEW_TIMES and not one.is_written)
    number = files.total()
    is_near = limit is not None and 2 * number >= limit
    grows = 0 < before.total() < number
    return 2 * few <= number or is_near or grows


def _open_files(pid: int) -> Sequence[Open]:
    try:
        return open_files(pid)
    except OSError as error:
        raise NotLookedAt(f"its descriptors cannot be read: {error.strerror}") from None


def _threads(facts: Facts) -> Iterator[Sign]:
    """Threads of one kind are started again and again, and do not end."""
    pid = facts.pid_here()
    rows = facts.live("threads")
    kinds: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["thread_name"] and not row["is_main"] and not _POOLS.search(row["thread_name"]):
            kinds[re.sub(r"\d+", "#", row["thread_name"])].append(row["thread_id"])
    for kind, threads in kinds.items():
        starts = [s for t in threads if (s := _start_s(f"/proc/{pid}/task/{t}/stat")) is not None]
        if len(starts) < _SAME_THREADS or not _came_all_along(
            starts, _start_s(f"/proc/{pid}/stat")
        ):
            continue
        waits = {row["waiting"] for row in rows if row["thread_id"] in threads and row["waiting"]}
        yield Sign(
            certainty="likely",
            summary=f"{len(starts)} threads like {kind.replace('#', 'N')} have been started one by"
            " one, and none of them has ended",
            evidence=(
                f"the newest was started {_ago(max(starts))} ago, the oldest {_ago(min(starts))}"
                " ago",
                *((f"they are {waits.pop()}",) if len(waits) == 1 else ()),
            ),
            weight=0.4,
        )


def _children(facts: Facts) -> Iterator[Sign]:
    """Processes are started again and again, and do not end."""
    pid = facts.pid_here()
    rows = [row for row in facts.live("host_memory") if row["role"] in {"data_worker", "child"}]
    for role in ("data_worker", "child"):
        own = [row for row in rows if row["role"] == role]
        starts = [s for r in own if (s := _start_s(f"/proc/{r['pid']}/stat")) is not None]
        if len(starts) < _MANY_CHILDREN or not _came_all_along(
            starts, _start_s(f"/proc/{pid}/stat")
        ):
            continue
        total = sum(row["private_bytes"] or 0 for row in own)
        what = "data workers" if role == "data_worker" else "child processes"
        yield Sign(
            certainty="likely",
            summary=f"{len(starts)} {what} have been started one after another, and none of them"
            f" has ended: they hold {size(total)}",
            evidence=(
                f"the newest was started {_ago(max(starts))} ago, the oldest {_ago(min(starts))}"
                " ago",
            ),
            weight=0.4,
            fix="Make the iterator over a loader once, or let go of it: its workers live as long as"
            " it does." if role == "data_worker" else "",
        )  # fmt: skip


def _shared_files(facts: Facts) -> Iterator[Sign]:
    """Files in /dev/shm come all along and stay."""
    pid = facts.pid_here()
    began = _start_s(f"/proc/{pid}/stat")
    uid = process.owner(pid)
    now, boot = time.time(), _since_boot()
    found: list[tuple[float, int, str]] = []
    for path in Path("/dev/shm").rglob("*"):  # noqa: S108 - looked at, never written to
        try:
            facts_of = path.lstat()
        except OSError:
            continue
        made = boot - (now - facts_of.st_ctime)
        is_own = facts_of.st_uid == uid and path.is_file() and not _RECORD.search(str(path))
        if is_own and began is not None and made > began:
            found.append((made, facts_of.st_blocks * 512, str(path)))
    kinds: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for one in found:
        kinds[re.sub(r"\d+", "#", one[2])].append(one)
    for those in kinds.values():
        total = sum(one[1] for one in those)
        starts = [one[0] for one in those]
        if len(those) < _SHM_FILES or total < _SHM_BYTES or not _came_all_along(starts, began):
            continue
        others = 0 if _is_its_own(pid, those[-1][2]) else _other_writers(pid, uid)
        yield Sign(
            certainty="possible" if others else "likely",
            summary=f"{len(those)} files like {those[-1][2]} have been written since the process"
            f" began, and are still there: {size(total)} of memory",
            evidence=(
                f"the newest was written {_ago(max(starts))} ago",
                *((f"{others} other Python processes of its user may have written them",)
                  if others else ()),
            ),
            weight=0.4,
        )  # fmt: skip


def _is_its_own(pid: int, path: str) -> bool:
    """Whether a file names the process or one that it has started, or is open in it."""
    numbers = set(re.findall(r"\d+", path))
    return bool(numbers & {str(one) for one in descendants(pid) | {pid}}) or any(
        path == one.path for one in _open_files(pid)
    )


def _other_writers(pid: int, uid: int | None) -> int:
    """How many other processes of its user run Python, without those around it and this command."""
    known = descendants(pid) | sql_workers(pid) | {pid, os.getpid()}
    around: int | None = pid
    while around and (facts := process.facts(around)) is not None:
        known.add(around)
        around = facts.parent
    found = 0
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) not in known and process.owner(int(name)) == uid:
            found += process.command(int(name))[:1] != () and process.is_python(int(name))
    return found


def _came_all_along(starts: Sequence[float], began: float | None) -> bool:
    """Whether things came one by one and not together.

    Args:
        starts: When each came, in seconds since the machine was started.
        began: When the process was.
    """
    if began is None:
        return False
    ordered = np.sort(np.array(starts))
    age = _since_boot() - began
    span = float(ordered[-1] - ordered[0])
    moments = np.unique((_MOMENTS * (ordered - ordered[0]) / age).astype(int))
    return span > _SPREAD * age and len(moments) >= _LEAST_MOMENTS


def _start_s(path: str) -> float | None:
    """When a process or thread was started, in seconds since the machine was."""
    try:
        fields = Path(path).read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) / _TICKS


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _ago(start_s: float) -> str:
    return f"{_since_boot() - start_s:.0f} s"


RULES = (
    Rule(
        name="descriptors",
        group="memory",
        subject="open files",
        symptom="OSError: Too many open files, after hours.",
        evidence=(
            f"{_SAME_FILE} or more open descriptors of one file, or of files named alike. Only"
            " possible where most are of files that can be read, none open more than twice, they"
            " are below half of the limit, and no more than at the first look: a data set in"
            " parts, or parameters in shared memory."
        ),
        certainty="likely",
        gravity=54,
        fix="Close what is opened: `with open(...) as file:`.",
        next="probing ENDPOINT leak",
        look=_descriptors,
    ),
    Rule(
        name="threads",
        group="memory",
        subject="threads and processes",
        symptom="The number of threads grows.",
        evidence=f"{_SAME_THREADS} or more threads named alike, started at different moments over"
        " a third of the process's life or more.",
        certainty="likely",
        gravity=53,
        fix="Give what they wait for a timeout, or use one ThreadPoolExecutor.",
        next='probing ENDPOINT query "SELECT thread_name, func, waiting FROM python.threads"',
        look=_threads,
    ),
    Rule(
        name="processes",
        group="memory",
        subject="threads and processes",
        symptom="The number of processes grows, and the machine's memory with them.",
        evidence=f"{_MANY_CHILDREN} or more children of one kind, started at different moments over"
        " a third of the process's life or more.",
        certainty="likely",
        gravity=56,
        fix="Wait for each process that is started, and end it.",
        next='probing ENDPOINT query "SELECT pid, role, name, private_bytes'
        ' FROM python.host_memory"',
        look=_children,
    ),
    Rule(
        name="shared-memory-files",
        group="memory",
        subject="memory",
        symptom="The machine runs out of memory that no process has.",
        evidence=(
            f"{_SHM_FILES} or more files of its user in /dev/shm, named alike, 2 MiB or more"
            " together, written at different moments over a third of the process's life or more;"
            " only possible where other Python processes of its user may have written them."
        ),
        certainty="likely",
        gravity=53,
        fix="Remove each file once it was read: /dev/shm is memory.",
        next='probing ENDPOINT query "SELECT * FROM python.host_memory"',
        look=_shared_files,
    ),
)
