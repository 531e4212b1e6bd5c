"""How a process ended, from what its crash left in the run folder.

Rules of this file: reads files, trusts nothing in them, and any bytes at all give a record or
none. What the agent writes down of an exception is a `CrashRecord`; what faulthandler writes at a
fatal signal is text, and is parsed into one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import BadRequest
from ..linux.foreign_files import open_file, read_file
from ..messages.codec import decode, without_checksum
from ..messages.common import Frame, ThreadStack
from ..messages.frozen import dataclass
from ..ring.peek import last_step
from ..rundir.folders import ProcessFolder
from ..stacks.source_lines import SourceLines
from ..stacks.text import is_ours

SIGNAL, EXCEPTION, THREAD_EXCEPTION = "signal", "exception", "thread exception"

_MAX_BYTES = 8 << 20
_MAX_NS = 2**62
_MAX_SENTENCE = 300
_THREAD_FRAMES = 4
"""A thread's outermost frames: three of `threading`, and the function that it was started for."""
_FATAL = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
_THREAD = re.compile(
    r"^(?:(Current thread|Thread) 0x([0-9a-f]{1,16})(?: \[(.*)\])?|Stack)"
    r" \(most recent call first\):$"
)
_FRAME = re.compile(r'^  File (?:"(.*)"|\?\?\?), line (\d{1,9}|\?\?\?) in (.*)$')
_TRACEBACK = "Traceback (most recent call last):"
_WORKER_FRAME = re.compile(r'^ +File "(.*)", line (\d{1,9}), in (.*)$', re.MULTILINE)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:32|64)?/python3\.\d+t?/|^<")
"""What is no program's own file."""
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Floating-point exception": signal.SIGFPE,
}
"""By the words that faulthandler has for them; it spells the last one differently since 3.13."""

_AMOUNT = r"([\d.]+ (?:bytes|[KMGT]iB))"
_MEMORY_FACTS = (
    ("asked for", re.compile(f"Tried to allocate {_AMOUNT}")),
    ("on GPU", re.compile(r"GPU (\d+)(?: has|;)")),
    ("in all", re.compile(f"total capacity of {_AMOUNT}")),
    ("free", re.compile(f"of which {_AMOUNT} is free")),
    ("in use by this process", re.compile(f"this process has {_AMOUNT} memory in use")),
    ("held by tensors", re.compile(f"{_AMOUNT} is allocated by PyTorch")),
    ("cached but unused", re.compile(f"{_AMOUNT} is reserved by PyTorch but unallocated")),
)
"""What the message of torch.OutOfMemoryError tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One of the exceptions that led to another.

    Attributes:
        relation: ``part`` of a group; ``cause`` where the code says ``raise ... from``, else
            ``context``.
    """

    relation: str
    type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashRecord:
    """What a crash left behind.

    Attributes:
        when_ns: When, in nanoseconds since the epoch.
        kind: ``signal``, ``exception`` or ``thread exception``.
        type: The signal's name, or the exception's class.
        message: The signal's description, or what the exception says.
        threads: Every thread's stack, the one that crashed first. An exception's frames are those
            that it came through.
        chain: What led to the exception, the nearest first.
        step: The training step, where one was counted and the agent could tell.
        left_out: Frames left out of the middle of the first stack.
        monotonic_ns: When, by the clock that the times of rows are made from, which nobody sets;
            None in records of older versions.
    """

    when_ns: int
    kind: str
    type: str
    message: str
    threads: tuple[ThreadStack, ...]
    chain: tuple[Link, ...] = ()
    step: int | None = None
    left_out: int = 0
    monotonic_ns: int | None = None


def read_crash(folder: ProcessFolder) -> CrashRecord | None:
    """The crash that explains how a process ended; None when it left no record.

    A fatal signal while Python was being torn down after an unhandled exception has no stack: it is
    the exception that explains the end. A thread's exception ends nothing but the thread, and one
    after which another step began was only shown by `sys.excepthook`.
    """
    fatal = _read_fatal(folder)
    exception = _read_exception(folder.exception)
    if exception is not None and _went_on(folder, exception):
        exception = None
    if fatal is not None and (exception is None or any(thread.frames for thread in fatal.threads)):
        return fatal
    return exception or _read_exception(folder.thread_exception)


def describe(record: CrashRecord) -> str:
    """How a process ended, in one sentence without its full stop."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.when_ns / 1e9))
    if record.kind == SIGNAL:
        return f"it was ended by {record.type} ({record.message}) at {at}"
    what = f"an unhandled {_named(record.type, record.message)}"
    if record.chain and (first := record.chain[0]).relation == "part":
        what += f", in it {_named(first.type, first.message)}"
    if record.kind == EXCEPTION:
        place = own_place(record.threads[0].frames if record.threads else ())
        return f"it ended with {what} (at {f'{place}, ' if place else ''}{at})"
    name = record.threads[0].name if record.threads else "a thread"
    return f"its thread {name} ended with {what} (at {at}), which by itself does not end a process"


def own_place(frames: Sequence[Frame]) -> str:
    """The innermost line of the program's own; empty where there is none."""
    own = next(
        (f for f in frames if f.kind == "python" and f.lineno and not _LIBRARY.search(f.file)), None
    )
    return "" if own is None else _line(own.file, own.lineno, own.func)


def _line(file: str, lineno: int | str | None, func: str) -> str:
    return f"{file.rpartition('/')[2]}:{lineno} in {func}"


def device_memory(message: str) -> str | None:
    """What torch's message says about the device's memory, in a few words; None if nothing."""
    facts = [(words, pattern.search(message)) for words, pattern in _MEMORY_FACTS]
    return ", ".join(f"{words} {m[1]}" for words, m in facts if m) or None


def name_link(link: Link) -> str:
    """An exception that led to another, in a few words."""
    return f"{_named(link.type, link.message)} ({link.relation})"


def _named(type: str, message: str) -> str:
    """An exception on one line."""
    words = " ".join(_from_elsewhere(message).split())
    if len(words) > _MAX_SENTENCE:
        words = words[:_MAX_SENTENCE].rstrip() + "..."
    return f"{type}: {words}" if words else type


def _from_elsewhere(message: str) -> str:
    """A message that holds the traceback of a worker: what was raised there, and where."""
    head, mark, told = message.partition(_TRACEBACK)
    frames = list(_WORKER_FRAME.finditer(told))
    after = told[frames[-1].end() if frames else 0 :].splitlines()
    raised = next((line for line in after if line and not line[0].isspace()), "")
    if not mark or not raised:
        return message
    head = (
        " ".join(line.strip() for line in head.splitlines()).removesuffix("Original").strip(" .:-")
    )
    own = [frame for frame in frames if not _LIBRARY.search(frame[1])] or frames
    place = f", at {_line(own[-1][1], own[-1][2], own[-1][3])}" if own else ""
    return f"{head}: {raised}{place}" if head else f"{raised}{place}"


def parse_fatal(data: bytes, *, pid: int, when_ns: int) -> CrashRecord | None:
    """What faulthandler wrote, behind the agent's own first line; None when that is no crash.

    A second signal that came while the first was being written down is left out.
    """
    text = data.decode("utf-8", "replace")
    reports = list(_FATAL.finditer(text))
    if not reports:
        return None
    words = reports[0][1].strip()
    number = _SIGNALS.get(words)
    end = reports[1].start() if len(reports) > 1 else len(text)
    main, agent_files = _head(text)
    found = list(_threads(text[reports[0].end() : end], pid, main))
    found.sort(key=lambda item: (not item[0], not item[1].is_main))
    threads = [
        thread
        for crashed, thread in found
        if crashed or thread.is_main or not _is_agents(thread, agent_files)
    ]
    return CrashRecord(
        when_ns=when_ns,
        kind=SIGNAL,
        type=number.name if number else "a fatal error",
        message=words,
        threads=tuple(threads),
    )


def _read_fatal(folder: ProcessFolder) -> CrashRecord | None:
    try:
        with open(open_file(folder.fatal_signal), "rb") as file:
            when_ns = os.fstat(file.fileno()).st_mtime_ns
            data = file.read(_MAX_BYTES)
    except OSError:
        return None
    return parse_fatal(data, pid=folder.pid, when_ns=min(max(0, when_ns), _MAX_NS))


def _read_exception(path: Path) -> CrashRecord | None:
    """The record that the agent wrote, without the frames of its own."""
    try:
        data, when_ns = read_file(path, _MAX_BYTES), os.stat(path).st_mtime_ns
    except OSError:
        return None
    try:
        record = decode(CrashRecord, without_checksum(data))
    except BadRequest:
        return _damaged(path, when_ns)
    if record.kind not in {EXCEPTION, THREAD_EXCEPTION} or not 0 <= record.when_ns <= _MAX_NS:
        return _damaged(path, when_ns)
    threads = tuple(
        [
            replace(thread, frames=tuple([f for f in thread.frames if not is_ours(f.file)]))
            for thread in record.threads
        ]
    )
    return replace(record, threads=threads)


def _damaged(path: Path, when_ns: int) -> CrashRecord:
    """What a file tells that there is and that cannot be read: of which kind the end was."""
    return CrashRecord(
        when_ns=min(max(0, when_ns), _MAX_NS),
        kind=EXCEPTION if path.name == "exception.json" else THREAD_EXCEPTION,
        type="exception",
        message=f"{path} is damaged and does not tell which",
        threads=(),
    )


def _went_on(folder: ProcessFolder, exception: CrashRecord) -> bool:
    """Whether a step began later than that, also where the machine's clock was set meanwhile."""
    step = last_step(folder)
    if step is None:
        return False
    start_ns: int = step.values.get("start_ns") or 0
    if exception.monotonic_ns is None:
        return start_ns > exception.when_ns
    return start_ns - step.clock_offset_ns > exception.monotonic_ns


def _head(text: str) -> tuple[int, str]:
    """The main thread's number in Python, and the folder of the agent's files, by our own line."""
    try:
        head = json.loads(text.partition("\n")[0])
        return int(head["main"]), str(head["agent"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0, ""


def _threads(text: str, pid: int, main: int) -> Iterator[tuple[bool, ThreadStack]]:
    """The stacks of a report, each with whether it is the one that crashed."""
    header: re.Match[str] | None = None
    frames: list[Frame] = []
    source = SourceLines()
    for line in [*text.splitlines(), "Stack (most recent call first):"]:
        begins = _THREAD.match(line)
        if begins is None:
            frame = _FRAME.match(line) if header else None
            if frame is not None:
                frames.append(_frame(frame, source))
            continue
        if header is not None:
            yield header[1] != "Thread", _thread(header, tuple(frames), pid, main)
        header, frames = begins, []


def _thread(header: re.Match[str], frames: tuple[Frame, ...], pid: int, main: int) -> ThreadStack:
    """One thread; faulthandler numbers it as Python does, and names it since 3.14."""
    number = int(header[2] or "0", 16)
    is_main = number != 0 and number == main
    name = "MainThread" if is_main else _unescaped(header[3] or "") or f"thread {number:#x}"
    shown = tuple([frame for frame in frames if not is_ours(frame.file)])
    return ThreadStack(thread_id=pid if is_main else 0, name=name, is_main=is_main, frames=shown)


def _frame(match: re.Match[str], source: SourceLines) -> Frame:
    """One frame, with the text of its line where the source is still there."""
    path = _unescaped(match[1] or "???")
    number = int(match[2]) if match[2].isdecimal() else 0
    return Frame(
        func=_unescaped(match[3]), file=path, lineno=number, line=source.line(path, number) or None
    )


def _unescaped(text: str) -> str:
    """A text as it was before faulthandler wrote it in ASCII."""
    return _ESCAPE.sub(lambda m: _character(int(m[1] or m[2] or m[3], 16)), text)


def _character(code: int) -> str:
    """A character, if there is one of that number that can be written anywhere."""
    is_character = code <= sys.maxunicode and not 0xD800 <= code < 0xE000
    return chr(code) if is_character else "\N{REPLACEMENT CHARACTER}"


def _is_agents(thread: ThreadStack, agent_files: str) -> bool:
    """Whether it is one of the agent's own threads: what it was started for is the agent's."""
    began = [frame.file for frame in thread.frames[-_THREAD_FRAMES:]]
    return bool(agent_files) and any(file.startswith(agent_files) for file in began)
