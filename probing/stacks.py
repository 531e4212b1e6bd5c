"""Stacks as tables, and stacks taken from outside the process.

Rules of this file: runs at the operator's side or in the SQL worker; the process that is
looked at is never stopped and never asked for help. A `Backtrace` is the one shape of stacks,
whoever took it; both live tables of stacks are made from it here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import process
from .errors import InternalError, NoPermission, NotAnswering, ProcessEnded
from .tables import BACKTRACE, THREADS, Table
from .wire import Backtrace, Frame, LiveRows, ThreadStack

_OUR_FILES = ("/agent/sources/modules.py", "/probing/_run.py")
"""Files of ours whose frames stand between those of the job, and say nothing about it."""
STACK_TABLES = frozenset({BACKTRACE.name, THREADS.name})


def rows_of(table: Table, backtrace: Backtrace) -> LiveRows:
    """The rows of `python.backtrace` or `python.threads` at the moment of a backtrace."""
    make = _backtrace_rows if table is BACKTRACE else _thread_rows
    columns = tuple(column.name for column in table.columns)
    return LiveRows(table=table.name, columns=columns, rows=tuple(make(backtrace)))


def _backtrace_rows(backtrace: Backtrace) -> list[tuple[Any, ...]]:
    """One row per frame, in the order of the table's columns."""
    return [
        (
            frame.func,
            frame.file,
            frame.lineno,
            depth,
            thread.thread_id,
            thread.name,
            thread.is_main,
            frame.kind,
            backtrace.source,
        )
        for thread in backtrace.threads
        for depth, frame in enumerate(thread.frames)
    ]


def _thread_rows(backtrace: Backtrace) -> list[tuple[Any, ...]]:
    """One row per thread, in the order of the table's columns."""
    rows = []
    for thread in backtrace.threads:
        top = thread.frames[0] if thread.frames else None
        where = (top.func, top.file, top.lineno) if top else (None, None, None)
        facts = (thread.daemon, thread.alive, thread.state, thread.cpu_s)
        identity = (thread.thread_id, thread.name, thread.is_main)
        rows.append((*identity, *facts, *where, backtrace.source))
    return rows


def is_ours(file: str) -> bool:
    """Whether a frame of that file is the recorder's and not the job's."""
    return file.endswith(_OUR_FILES)


def take_from_outside(pid: int, *, timeout_s: float = 10.0) -> Backtrace:
    """The stacks of any Python process, read by py-spy without stopping it.

    Raises:
        NoPermission: The kernel does not let this user read that process.
        ProcessEnded: It is gone.
        NotAnswering: py-spy did not finish in time.
        InternalError: py-spy is missing or cannot read this process; the sentence says why.
    """
    argv = [_py_spy(), "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise NotAnswering(f"py-spy on process {pid}", timeout_s) from None
    if done.returncode:
        raise _py_spy_error(pid, done.stderr.decode("utf-8", "replace"))
    facts = process.threads(pid)
    try:
        threads = [_thread(raw, pid, facts) for raw in json.loads(done.stdout)]
    except (ValueError, KeyError, TypeError) as error:
        raise InternalError(f"py-spy's answer cannot be read ({error!r})") from None
    threads = [t for t in threads if not t.name.startswith("probing-")]
    threads.sort(key=lambda thread: not thread.is_main)
    return Backtrace(pid=pid, source="py-spy", threads=tuple(threads))


def _py_spy() -> str:
    """The py-spy executable: beside this interpreter first, then on the PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise InternalError("py-spy is not installed; `pip install py-spy` adds it")
    return found


def _py_spy_error(pid: int, stderr: str) -> Exception:
    """What went wrong, in our words."""
    lines = [line for line in stderr.splitlines() if line.startswith("Error: ")]
    reason = lines[0].removeprefix("Error: ") if lines else "it gave no reason"
    if process.start_time(pid) is None:
        return ProcessEnded(pid, "there is no stack to read")
    if "ermission" in stderr:
        return NoPermission(
            f"reading the memory of process {pid}",
            help="Ask as root, or allow it with `sysctl kernel.yama.ptrace_scope=0`; in a"
            " container, add the capability SYS_PTRACE.",
        )
    return InternalError(f"py-spy cannot read process {pid}: {reason}")


def _thread(raw: dict[str, Any], pid: int, facts: dict[int, process.ThreadFacts]) -> ThreadStack:
    """One thread of py-spy's answer."""
    number = int(raw["os_thread_id"] or 0)
    fact = facts.get(number)
    frames = tuple(
        Frame(
            func=str(frame["name"]),
            file=str(frame["filename"]),
            lineno=int(frame["line"]),
            kind="python" if str(frame["filename"]).endswith(".py") or frame["line"] else "native",
        )
        for frame in raw["frames"]
        if not is_ours(str(frame["filename"]))
    )
    return ThreadStack(
        thread_id=number,
        name=str(raw["thread_name"] or f"thread {number}"),
        is_main=number == pid,
        frames=frames,
        state=fact.state if fact else None,
        cpu_s=fact.cpu_s if fact else None,
        holds_gil=bool(raw["owns_gil"]),
    )


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped the process."""
    return process.state(pid) in {"T", "t"}
