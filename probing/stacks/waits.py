"""Says in words what a thread waits for.

Rules of this file: pure functions of what was seen of a thread; the knowledge is in `wait_rules`.
What the kernel says of the thread comes before its frames, and the frames of libraries before
those of C functions; a guess is made from a source line only when there is nothing better. When
nothing is known, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..linux.process import SystemCall, ThreadFacts
from ..messages.common import Frame
from . import wait_rules
from .wait_rules import Rule

WAITS_FOR_GIL = "waiting for the interpreter lock (GIL)"
_RUNS = "running Python code"
BY_DEBUGGER = "stopped by a debugger"
_STATES = {"T": "stopped by a signal", "t": BY_DEBUGGER, "Z": "ended", "X": "ended"}
_STDLIB = re.compile(r"/lib(?:32|64)?/python3\.\d+t?/(?!site-packages|dist-packages)(.+)")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(.+)")
_FROZEN = re.compile(r"<(frozen .+)>$")
_TORCH = re.compile(r".*/(torch/(?:_inductor|autograd|cuda|distributed|utils)/.+)")
_AUTOGRAD = "torch/autograd/"
_WAKE_UPS = 2
GIL_LOOK_S = 0.02
"""How far the two looks of `gil_waiters` must be apart: four times Python's switch interval."""
_NO_NAME = re.compile("0x[0-9a-f]+")


class Sight(NamedTuple):
    """What was seen of one thread.

    Attributes:
        frames: Innermost first.
        facts: What the kernel tells; None where unknown.
        wants_gil: Whether it has been seen to wait for the interpreter lock.
        by_agent: Whether the agent itself held the interpreter lock meanwhile, as when it looked.
        has_native: Whether frames of C functions were looked for, so that having none means
            something.
    """

    frames: Sequence[Frame]
    facts: ThreadFacts | None = None
    wants_gil: bool = False
    by_agent: bool = False
    has_native: bool = False


def describe(sight: Sight) -> str | None:
    """What a thread waits for or does; None where that cannot be told."""
    state = sight.facts.state if sight.facts else None
    if state in _STATES:
        return _STATES[state]
    if state == "D":
        return _in_kernel(sight.facts)
    if sight.wants_gil or _is_in_take_gil(sight.frames):
        return WAITS_FOR_GIL
    runs = state == "R"
    native = _native_names(sight.frames)
    by_native = _by_native(native)
    if by_native == wait_rules.LOCK:  # all of Python waits in locks: the line may know more
        by_native = _by_line(sight, runs=runs) or by_native
    return (
        _by_library(sight.frames, runs=runs)
        or by_native
        or _by_line(sight, runs=runs)
        or (None if runs else _by_call(sight))
        or _at_work(sight, native, runs=runs)
    )


def may_be_in_backward(stacks: Iterable[Sequence[Frame]]) -> bool:
    """Whether any of all threads is inside of a backward pass; also where no stack is known."""
    files = {frame.file for frames in stacks for frame in frames if frame.kind == "python"}
    return not files or any((library_path(file) or "").startswith(_AUTOGRAD) for file in files)


def idle_device(sight: Sight) -> str | None:
    """That a thread is autograd's of a device, which waits for a backward pass; None of others."""
    facts = sight.facts
    is_autograds = facts is not None and facts.name.startswith(wait_rules.AUTOGRAD_THREAD)
    rests = facts is not None and facts.state == "S"
    has_frames = any(frame.kind == "python" for frame in sight.frames)
    return wait_rules.IDLE_DEVICE if is_autograds and rests and not has_frames else None


def gil_waiters(before: dict[int, ThreadFacts], after: dict[int, ThreadFacts]) -> set[int]:
    """The threads that woke up and fell asleep again and again between two looks.

    Who waits for the interpreter lock does so every few milliseconds, to ask for it anew. Only
    to be asked when another thread has held the lock in between.
    """
    found = set()
    for number, fact in after.items():
        old = before.get(number)
        if old is None or old.switches is None or fact.switches is None:
            continue
        asks = [_is_in_futex(look) for look in (old, fact)]
        is_awake = [look.state == "R" for look in (old, fact)]  # for a moment at a time
        is_asking = any(asks) and all(a or b for a, b in zip(asks, is_awake, strict=True))
        if is_asking and fact.switches - old.switches >= _WAKE_UPS:
            found.add(number)
    return found


def own_s(before: ThreadFacts, now: ThreadFacts, passed_s: float) -> float:
    """For how much of the time that has passed a thread did not wait for a processor.

    The kernel counts a wait for one once it is over, so of a thread that is ready now only the time
    is sure in which it ran.
    """
    if now.state == "R":
        return now.cpu_s - before.cpu_s
    if now.ready_s is None or before.ready_s is None:
        return passed_s
    return passed_s - (now.ready_s - before.ready_s)


def _is_in_futex(facts: ThreadFacts) -> bool:
    call = _kernel_call(facts)
    return call is not None and call.name == "futex"


def c_function(frames: Iterable[Frame]) -> str | None:
    """The innermost C function of a stack that has a name."""
    names = _native_names(frames)
    return names[0] if names else None


def _native_names(frames: Iterable[Frame]) -> list[str]:
    """The named C functions called by the innermost Python frame, innermost first."""
    return [frame.func for frame in _native_frames(frames)]


def _native_frames(frames: Iterable[Frame]) -> list[Frame]:
    found = []
    for frame in frames:
        if frame.kind != "native":
            break
        if not _NO_NAME.fullmatch(frame.func):
            found.append(frame)
    return found


def _is_in_take_gil(frames: Iterable[Frame]) -> bool:
    """Whether the C functions are those by which CPython waits for its lock."""
    named = _native_frames(frames)
    if not named or named[0].func not in wait_rules.GIL_WAITS:
        return False
    caller = named[1].file.rpartition("/")[2] if len(named) > 1 else "python"
    return caller.startswith(("python", "libpython"))


def _by_library(frames: Sequence[Frame], *, runs: bool) -> str | None:
    """What the outermost library function that is known, called by the job, waits for."""
    says = None
    for index, frame in enumerate(frame for frame in frames if frame.kind == "python"):
        path = library_path(frame.file)
        if path is None or (index and not wait_rules.PLUMBING.match(path)):
            break
        says = _by_rules(frame, path, runs=runs) or says
    return says


def _by_rules(frame: Frame, path: str, *, runs: bool) -> str | None:
    """What the first rule that fits a library's frame says."""
    owner, _, func = frame.func.rpartition(".")
    for rule in wait_rules.LIBRARY:
        if rule.busy or not runs:
            fits = _fits_file(rule.file, path) and re.fullmatch(rule.func, func)
            if fits and _fits_owner(rule, owner, frame.line or ""):
                return rule.says.format(func)
    return None


@lru_cache(maxsize=512)
def _fits_file(pattern: str, path: str) -> bool:
    if pattern.endswith("/"):
        return re.match(pattern, path) is not None
    return re.fullmatch(pattern, path) is not None


def _fits_owner(rule: Rule, owner: str, line: str) -> bool:
    """Whether a rule fits: one for one class by the class's name, else by the line."""
    if not rule.owner and not rule.line:
        return True
    if owner and rule.owner:
        return re.fullmatch(rule.owner, owner.rpartition(".")[2]) is not None
    return re.search(rule.line, line) is not None


@lru_cache(maxsize=512)
def library_path(file: str) -> str | None:
    """A file's path within the standard library or a package; None for the job's own."""
    for pattern in (_PACKAGES, _STDLIB, _TORCH, _FROZEN):
        found = pattern.search(file)
        if found:
            return found[1]
    return None


def _by_native(names: Sequence[str]) -> str | None:
    """What the C functions say."""
    for pattern, says in wait_rules.NATIVE:
        for name in names:
            if re.search(pattern, name):
                return says.format(name)
    return None


def _by_line(sight: Sight, *, runs: bool) -> str | None:
    """What the line says that the innermost Python frame is at."""
    call = _kernel_call(sight.facts)
    if not runs and (sight.facts is None or (call is not None and call.name != "futex")):
        return None
    line = next((f.line for f in sight.frames if f.kind == "python"), None) or ""
    for pattern, says in wait_rules.BUSY_LINES if runs else wait_rules.LINES:
        if re.search(pattern, line):
            return says
    return None


def _by_call(sight: Sight) -> str | None:
    """What the system call says."""
    call = _kernel_call(sight.facts)
    if call is None:
        return None
    if call.has_limit and sight.by_agent:  # it waits for the lock that the agent has just now
        return _RUNS
    for names, file, says in wait_rules.CALLS:
        if re.fullmatch(names, call.name) and re.match(file, call.file or ""):
            return says.format(call.name)
    return None


def _kernel_call(facts: ThreadFacts | None) -> SystemCall | None:
    """The system call, by its number or by where in the kernel the thread sleeps."""
    if facts is None:
        return None
    if facts.call is not None and facts.call.name != "restart_syscall":
        return facts.call
    for pattern, name in wait_rules.WCHANS:
        if facts.wchan and re.match(pattern, facts.wchan):
            return SystemCall(name=name)
    return None


def _in_kernel(facts: ThreadFacts | None) -> str:
    """What a thread in state D waits for."""
    where = facts.wchan if facts else None
    at = f" ({where})" if where else ""
    if facts and facts.call and facts.call.name in {"clone", "clone3", "vfork"}:
        return f"in an uninterruptible wait for a new process to begin{at}"
    if where and wait_rules.KERNEL_FILE_IO.search(where):
        return f"in an uninterruptible wait for file input or output{at}"
    return f"in an uninterruptible wait of the kernel{at}"


def _at_work(sight: Sight, native: Sequence[str], *, runs: bool) -> str | None:
    """What a thread does that waits for nothing."""
    if native:
        return f"in C code ({native[0]})"
    if not runs:
        return None
    return _RUNS if sight.has_native else "running"
