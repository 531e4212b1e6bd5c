"""How a rank has ended, and whether for a reason of its own or because another was gone.

Rules of this file: reads what a process has left; nothing here waits for a rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....errors import ProbingError
from ....messages.common import Backtrace
from ....postmortem.crashes import THREAD_EXCEPTION, CrashRecord, describe, read_crash
from ....postmortem.endings import LAST_MEMORY, Ending, Way, ending_of
from ....postmortem.memory_signs import Row
from ..evidence import State

if TYPE_CHECKING:
    from ....client.base import Process
    from ....rundir.folders import ProcessFolder

_OF_PEERS = re.compile(
    r"(?i)connection (was )?(likely )?(reset|closed|refused)|closed by peer|broken pipe"
    r"|timed out waiting \d+ ?ms|wait timeout after \d+|socket timeout|gloo/transport"
    r"|nccl communicator was aborted|remote process (exited|has)|watchdog caught collective"
    r"|collective operation timeout|monitoredBarrier|failed to recv, got 0 bytes"
    r"|Dist(Backend|Network|Store)Error|SIGTERM"
)
"""What errors say whose reason is that another rank is gone, or does not come."""
_OF_CODE = re.compile(r"\b(Timeout|Connection\w*|BrokenPipe|OS)Error\b")
"""Errors of Python itself: they are of whatever the code talks to, unless torch's code does."""
_OF_TORCH = re.compile(r"torch/distributed/|torch/nn/parallel/")


class End(NamedTuple):
    """How a rank has ended or is about to.

    Attributes:
        words: It in a clause.
        ended_ns: When, since the epoch.
        is_own: Whether it was for a reason of its own.
        is_terminated: Whether it was by SIGTERM.
        asked_by: Who sent that, empty where it is not known; None where none is on record.
        way: How it ended, where no crash tells.
    """

    words: str | None = None
    ended_ns: int | None = None
    is_own: bool = True
    is_terminated: bool = False
    asked_by: str | None = None
    way: Way | None = None


def how_ended(process: Process, state: State, trace: Backtrace | None, notes: list[str]) -> End:
    """How it ended or is about to, when, and whether for a reason of its own."""
    folder = process.folder
    if folder is not None and state == "dead":
        return end_of(folder, lambda: _last_memory(process, notes))
    crash = read_crash(folder) if folder is not None else None
    if crash is not None:
        return End(_of_living(crash), crash.when_ns, not _is_of_peers(crash))
    note = trace.note if state == "dead" and trace is not None else None
    return End(note, None, not (note and says_of_peers(note)))


def end_of(folder: ProcessFolder, last_memory: Callable[[], Sequence[Row]] = tuple) -> End:
    """How the process of a run folder has ended.

    Args:
        last_memory: Gives its last rows of python.memory, the newest first, where they may be read.
    """
    crash = read_crash(folder)
    if crash is None or crash.kind == THREAD_EXCEPTION:
        return told_end(ending_of(folder, last_memory()), crash)
    asked = ending_of(folder, ())
    if asked is not None and asked.reason == "terminated":  # and it raised on its way out
        return told_end(asked, None)
    return End(describe(crash), crash.when_ns, not _is_of_peers(crash))


def _of_living(crash: CrashRecord) -> str:
    """How a thread of a living process has ended, and where."""
    text = describe(crash).replace("it ended with", "its main thread ended with")
    frame = next(iter(crash.threads[0].frames), None) if crash.threads else None
    at = f", at {frame.file.rpartition('/')[2]}:{frame.lineno} in {frame.func}" if frame else ""
    return text.removesuffix(", which by itself does not end a process") + at


def told_end(found: Ending | None, lost: CrashRecord | None) -> End:
    """The same of one without a crash of its own.

    Args:
        lost: The exception of a thread, which it has outlived.
    """
    if found is None:
        return End()
    words = " ".join(found.sentences)
    is_of_others = found.by_sigterm or bool(found.ended_ns and says_of_peers(words))
    before = f"; before that {describe(lost)}" if lost is not None else ""
    is_terminated = found.reason == "terminated"
    return End(
        f"{_clause(words)}{before}",
        found.ended_ns,
        not is_of_others,
        is_terminated,
        found.asked_by,
        found.way,
    )


def _is_of_peers(crash: CrashRecord) -> bool:
    """Whether a crash is one of a rank that another was gone from."""
    frames = crash.threads[0].frames if crash.threads else ()
    if any(_OF_TORCH.search(frame.file) for frame in frames):
        return bool(_OF_PEERS.search(f"{crash.type} {crash.message}"))
    return says_of_peers(f"{crash.type} {crash.message}")


def says_of_peers(text: str) -> bool:
    """The same, where nothing but its words is known."""
    return bool(_OF_PEERS.search(text)) and not _OF_CODE.search(text)


def _clause(text: str) -> str:
    """Sentences as they fit behind a colon."""
    return f"{text[:1].lower()}{text[1:]}".rstrip(".")


def _last_memory(process: Process, notes: list[str]) -> list[dict[str, Any]]:
    """What its memory was when it was looked at last; none, and a note, where that is not known."""
    try:
        return process.query(LAST_MEMORY).to_pylist()
    except ProbingError as error:
        notes.append(error.message)
        return []
