"""Stacks taken from outside the process, by py-spy.

Rules of this file: starts py-spy and reads what it says; knows nothing of agents. A dump that
pauses the process is asked for by name, and must not be while a thread is stopped or in state D:
py-spy would wait for that thread for ever and hold the others meanwhile. Every dump has a limit.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InternalError, NoPermission, NotAnswering, ProcessEnded
from ..linux import permission, process
from ..linux.thread_numbers import kernel_numbers, outer_numbers
from ..messages.common import Frame, Local, ThreadStack

_REAP_S = 1.0
_LONGEST_VALUE = 200
_TELL_S = 0.5
_ENDED = "because process exited"
"""What it says where that was before the time was up."""
_LATE_S = 15.0
"""What py-spy may take beside its sampling: it looks for the interpreter first."""


class Dump(NamedTuple):
    """How to take the stacks.

    Attributes:
        native: Also the frames of C functions; this pauses the process.
        pause: Whether the process may be paused, so that no stack is torn.
        locals: Also the local variables.
        timeout_s: When to give up.
    """

    native: bool = False
    pause: bool = False
    locals: bool = False
    timeout_s: float = 10.0

    def argv(self, pid: int) -> list[str]:
        """The command."""
        words = [
            _executable(),
            "dump",
            "--json",
            "--full-filenames",
            "--pid",
            str(process.with_memory(pid)),
        ]
        if self.native:
            words.append("--native")
        elif not self.pause:
            words.append("--nonblocking")
        if self.locals:
            words.append("--locals")
        return words


class Record(NamedTuple):
    """How to sample stacks for a while; the process is never paused.

    Attributes:
        hz: Samples per second.
        idle: Also the threads that wait.
        gil: Only the thread that holds the interpreter lock.
        timeline: Keep the order of time, as a Chrome trace.
    """

    seconds: float = 10.0
    hz: int = 100
    idle: bool = False
    gil: bool = False
    timeline: bool = False

    @property
    def whole_seconds(self) -> float:
        """How long it takes: py-spy can be told whole seconds only."""
        return float(math.ceil(self.seconds))

    def argv(self, pid: int, output: str) -> list[str]:
        """The command."""
        words = [_executable(), "record", "--nonblocking", "--threads", "--full-filenames"]
        words += ["--format", "chrometrace" if self.timeline else "raw"]
        words += ["--rate", str(self.hz), "--output", output]
        words += ["--duration", f"{self.whole_seconds:.0f}", "--pid", str(pid)]
        words += ["--gil"] if self.gil else []
        return [*words, "--idle"] if self.idle else words


class Recorded(NamedTuple):
    """What came of it.

    Attributes:
        text: What py-spy wrote.
        failed: How many stacks it could not read.
        seconds: For how long it sampled.
    """

    text: str
    failed: int
    seconds: float


def record(pid: int, how: Record, tell: Callable[[float], None] | None = None) -> Recorded:
    """Sample a process.

    Args:
        tell: Called now and then with the seconds that have passed.

    Raises:
        NoPermission: The kernel does not let this user read that process.
        ProcessEnded: It is gone.
        InternalError: py-spy is missing or cannot read this process; the sentence says why.
    """
    with tempfile.TemporaryDirectory(prefix="probing-") as folder:
        output = Path(folder) / "record"
        # In a session of its own: a Ctrl-C is for us to hear, and for it to be ended by.
        runner = subprocess.Popen(
            how.argv(pid, str(output)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        began = time.monotonic()
        try:
            while True:
                try:
                    out, _ = runner.communicate(timeout=_TELL_S)
                    break
                except subprocess.TimeoutExpired:
                    passed = time.monotonic() - began
                    if passed > how.whole_seconds + _LATE_S:
                        raise NotAnswering(f"py-spy on process {pid}", passed) from None
                    if tell is not None:
                        tell(passed)
        finally:
            if runner.poll() is None:
                runner.kill()
                runner.communicate()
        said = out.decode("utf-8", "replace")
        if runner.returncode:
            raise _error(pid, said)
        failed = re.search(r"Errors: (\d+)", said)
        seconds = how.whole_seconds
        if _ENDED in said:
            seconds = min(seconds, round(time.monotonic() - began, 1))
        text = output.read_text("utf-8", "replace") if output.exists() else ""
        return Recorded(text, int(failed[1]) if failed else 0, seconds)


def take(pid: int, how: Dump) -> list[ThreadStack]:
    """The stacks of any Python process, in py-spy's order, the agent's threads among them.

    Raises:
        NoPermission: The kernel does not let this user read that process.
        ProcessEnded: It is gone.
        NotAnswering: py-spy did not finish in time.
        InternalError: py-spy is missing or cannot read this process; the sentence says why.
    """
    code, out, err = _run(pid, how)
    if code:
        raise _error(pid, err.decode("utf-8", "replace"))
    try:
        raw_threads = json.loads(out)
        numbers = {int(raw["thread_id"]): int(raw["os_thread_id"] or 0) for raw in raw_threads}
        outer = outer_numbers(pid)
        # Python 3.10 and older tell none unless the process was paused, and up to 3.13 the main
        # thread of a forked child has its parent's.
        if not outer.keys() >= set(numbers.values()):
            numbers = kernel_numbers(pid, numbers)
        numbers = {ident: outer.get(number, number) for ident, number in numbers.items()}
        return [_thread(raw, pid, numbers) for raw in raw_threads]
    except (ValueError, KeyError, TypeError) as error:
        raise InternalError(f"py-spy's answer cannot be read ({error!r})") from None


def _run(pid: int, how: Dump) -> tuple[int, bytes, bytes]:
    """Run py-spy, and end it when its time is up, even if it cannot be reaped."""
    runner = subprocess.Popen(  # not `run`, which waits for ever for one that cannot be killed
        how.argv(pid), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = runner.communicate(timeout=how.timeout_s)
    except subprocess.TimeoutExpired:
        runner.kill()
        try:
            runner.communicate(timeout=_REAP_S)
        except subprocess.TimeoutExpired:
            runner.returncode = -9  # left to the kernel; it must not be complained about later
        raise NotAnswering(f"py-spy on process {pid}", how.timeout_s) from None
    except BaseException:
        runner.kill()
        raise
    return runner.returncode, out, err


def _executable() -> str:
    """The py-spy executable: beside this interpreter first, then on the PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise InternalError("py-spy is not installed; `pip install py-spy` adds it")
    return found


def _error(pid: int, stderr: str) -> Exception:
    """What went wrong, in our words."""
    lines = [line for line in stderr.splitlines() if line.startswith("Error: ")]
    reason = lines[0].removeprefix("Error: ") if lines else "it gave no reason"
    if process.start_time(pid) is None:
        return ProcessEnded(pid, "there is no stack to read")
    if "ermission" in stderr or "not permitted" in stderr:
        return permission.why_forbidden(pid) or NoPermission(
            f"reading the memory of process {pid}",
            help="A security module or the container's seccomp profile forbids it: add the"
            " capability SYS_PTRACE, or ask from the host.",
        )
    return InternalError(f"py-spy cannot read process {pid}: {reason}")


def _thread(raw: dict[str, Any], pid: int, numbers: dict[int, int]) -> ThreadStack:
    """One thread of py-spy's answer."""
    name = str(raw["thread_name"] or "")
    number = numbers.get(int(raw["thread_id"]), pid if name == "MainThread" else 0)
    return ThreadStack(
        thread_id=number,
        name=name or f"thread {number or hex(raw['thread_id'])}",
        is_main=number == pid,
        frames=tuple([_frame(frame) for frame in raw["frames"]]),
        holds_gil=bool(raw["owns_gil"]),
    )


def _frame(raw: dict[str, Any]) -> Frame:
    """One frame. Native ones have the library they are of, and perhaps its source."""
    if raw["module"] is not None:
        return Frame(func=str(raw["name"]), file=str(raw["module"]), lineno=0, kind="native")
    return Frame(
        func=str(raw["name"]),
        file=str(raw["filename"]),
        lineno=int(raw["line"]),
        locals=_locals(raw["locals"]),
    )


def _locals(raw: list[dict[str, Any]] | None) -> tuple[Local, ...] | None:
    """The local variables; None where they were not asked for."""
    if raw is None:
        return None
    return tuple(
        [
            Local(name=str(item["name"]), value=str(item["repr"] or "?")[:_LONGEST_VALUE])
            for item in raw
        ]
    )
