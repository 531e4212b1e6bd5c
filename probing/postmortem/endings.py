"""How an ended process ended, as far as memory may have had to do with it.

Rules of this file: operator's side. What is certain is told apart from what is likely: a process
that the kernel kills leaves no word, so all there is are its last rows, and what the kernel still
says. `judge` is a pure function of what `ending_of` has read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ..linux import process
from ..linux.cgroup import NEAR_LIMIT, find_cgroup
from ..messages.card import FAILED_START, TAKEN_OUT
from ..messages.frozen import dataclass
from ..rundir import numbers
from ..rundir.folders import ProcessFolder
from ..units import size
from .crashes import SIGNAL, THREAD_EXCEPTION, CrashRecord, describe, read_crash
from .error_files import written_error
from .exits import exit_call, exit_of
from .kernel_log import KernelKill, logged_kills
from .launcher_logs import LauncherWord, launcher_word
from .terminations import CODE, WORDS, termination_of

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
_EXIT_CODE, _EXIT_0 = "exit code ", "exit code 0"
_MAY_BE_ASKED = frozenset({"exception", "exit_code", "killed", "orderly", "terminated"})
"""The reasons of ends that a SIGTERM before them explains."""
LAST_MEMORY = "SELECT * FROM python.memory ORDER BY seq DESC LIMIT 200"
"""The newest rows of python.memory, with the columns that their record has."""

Row = Mapping[str, Any]
Reason = Literal[
    "orderly",
    "interrupted",
    "exception",
    "signal",
    "exit_code",
    "terminated",
    "killed",
    "oom_killed",
    "unknown",
]


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
        by_sigterm: Whether a SIGTERM to it is on record, or its exit status is that signal.
        asked_by: Who sent it, empty where that is not known; None where none is on record.
        reason: In one word. ``orderly``: its agent was told of the end, or its exit code was 0;
            ``interrupted``: by Ctrl-C; ``signal``: a fatal one, as SIGSEGV; ``exit_code``: another
            one, also by `sys.exit`; ``terminated``: by SIGTERM, or in whatever way soon after one;
            ``killed``: without a word.
    """

    certain: tuple[str, ...]
    reason: Reason = "unknown"
    likely: tuple[str, ...] = ()
    was_killed: bool = False
    by_memory: bool = False
    by_cgroup: bool = False
    ended_ns: int | None = None
    by_sigterm: bool = False
    asked_by: str | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is certain and what is likely, each told as what it is."""
        return (*self.certain, *(f"{LIKELY}{sentence}" for sentence in self.likely))


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupNow:
    """The cgroup that this terminal is in.

    Attributes:
        limit: Bytes; None without one.
        kills: Processes that the kernel has killed in it.
    """

    limit: int | None
    kills: int


def ending_of(
    folder: ProcessFolder,
    rows: Sequence[Row],
    kills: Callable[[], Sequence[KernelKill]] | None = None,
) -> Ending | None:
    """How a process ended; None while it runs.

    Args:
        rows: Its last rows of python.memory, the newest first.
        kills: What the kernel's log holds, which is read where this is not given.
    """
    if folder.is_alive():
        return None
    ending = _ending_of(folder, rows, kills)
    asked = termination_of(folder, ending.ended_ns) if ending.reason in _MAY_BE_ASKED else None
    if asked is None:
        return ending
    told = [one for one in ending.certain if asked.is_handled or not one.startswith(WORDLESS)]
    ended_ns = ending.ended_ns if asked.is_handled else asked.when_ns
    return Ending(
        certain=(asked.sentence, *told),
        reason="terminated",
        ended_ns=ended_ns,
        by_sigterm=True,
        asked_by=asked.who,
    )


def _ending_of(
    folder: ProcessFolder,
    rows: Sequence[Row],
    kills: Callable[[], Sequence[KernelKill]] | None,
) -> Ending:
    """The same, whoever asked for it."""
    crash = read_crash(folder)
    if crash is not None and crash.kind != THREAD_EXCEPTION:
        told = (_sentence(describe(crash)),)
        return Ending(certain=told, reason=_reason_of(crash), ended_ns=crash.when_ns)
    error = written_error(folder)
    if error is not None:
        told = (_sentence(error.sentence()),)
        return Ending(certain=told, reason="exception", ended_ns=error.when_ns)
    word = launcher_word(folder)
    if not folder.socket.exists():
        return _left(folder, word)
    card = folder.read_card()
    if card is not None and card.boot_id != process.boot_id():
        told = ("The machine has been started anew since.",)
        return Ending(certain=told, reason="killed", was_killed=True)
    if folder.is_foreign():
        return _elsewhere(folder)
    # The kernel's log has the pids of no other namespace.
    is_here = card is not None and card.pid_namespace == numbers.FIRST
    found = (kills or logged_kills)() if is_here else []
    ending = judge(folder.pid, rows, found, cgroup_now(), started_s=_started_s(folder))
    words = process.exit_words(folder.pid, folder.start_time)
    status = f"Its exit status, which its parent has not taken yet, is {words}."
    if words is None and word is None:
        return ending
    if words is None and word is not None:
        words = word.words
        status = f"Its exit status, which its launcher wrote to {word.path}, is {words}."
    certain = (ending.certain[0], status, *ending.certain[1:])
    reason = _reason_with(words, ending.reason)
    if reason == "terminated":
        return Ending(certain=certain, reason=reason, by_sigterm=words == WORDS)  # all else is moot
    return replace(ending, certain=certain, reason=reason)


def _reason_of(crash: CrashRecord) -> Reason:
    """That of a crash that left word."""
    if crash.kind == SIGNAL:
        return "signal"
    return "interrupted" if crash.type == KeyboardInterrupt.__name__ else "exception"


def _reason_with(words: str | None, otherwise: Reason) -> Reason:
    """That of a process that left by itself, with an exit status in words, if it did."""
    if words == WORDS:
        return "terminated"
    if words is None or not words.startswith(_EXIT_CODE):
        return otherwise
    return "orderly" if words == _EXIT_0 else _reason_with_code(int(words.split()[-1]))


def _reason_with_code(code: int) -> Reason:
    """That of a process that left with a code other than 0."""
    return "terminated" if code == CODE else "exit_code"


def _elsewhere(folder: ProcessFolder) -> Ending:
    """The end of a process of another container, whose agent was told of none."""
    if folder.may_run_elsewhere():
        told = "It belongs to another container: from here nothing tells whether it still runs."
        return Ending(certain=(told,))
    told = "It ran in another container and has ended: how, nothing tells from here."
    return Ending(certain=(told,), reason="killed")


def _left(folder: ProcessFolder, word: LauncherWord | None) -> Ending:
    """The end of a process whose agent was told of it, or that had no agent at its end."""
    exited = exit_of(folder)
    code, when_ns = exited or (None, None)
    by = exit_call(folder, code) if code else None
    if word is not None and word.code not in {0, code}:
        left = f"It left by itself, without an exception that nobody caught, with {word.words}"
        told = f"{left}, as its launcher wrote to {word.path}."
        reason = _reason_with(word.words, "killed")
        return Ending(certain=(told,), reason=reason, by_sigterm=word.words == WORDS)
    if by is not None:
        left = f"It left by itself with exit code {code}, by {by.words}."
        return Ending(certain=(left,), reason=_reason_with_code(by.code), ended_ns=when_ns)
    untold = _without_agent(folder)
    if untold is None and code:
        left = f"It left by itself with exit code {code}, and no exception of it is on record."
        return Ending(certain=(left,), reason=_reason_with_code(code), ended_ns=when_ns)
    told = f"{ORDERLY}: its agent was told of the end."
    return untold or Ending(certain=(told,), reason="orderly")


def _without_agent(folder: ProcessFolder) -> Ending | None:
    """The end of a process that no agent has seen; None where one has."""
    card = folder.read_card()
    if card is None:
        return Ending(certain=(f"{UNTOLD}: it left no card that can be read.",))
    for problem in card.problems:
        if problem == TAKEN_OUT or problem.startswith(FAILED_START):
            words = process.exit_words(folder.pid, folder.start_time)
            if words is None:
                return Ending(certain=(f"{UNTOLD}: {problem.rstrip('.')}.",))
            told = ORDERLY if words == _EXIT_0 else "It ended"
            certain = (f"{told} with {words}: {problem.rstrip('.')}.",)
            reason = _reason_with(words, "killed")
            return Ending(certain=certain, reason=reason, by_sigterm=words == WORDS)
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
        " SIGKILL (or os._exit, SIGHUP, SIGTERM or SIGALRM without a handler, or the end of its"
        " container)."
    ]
    for kill in kills:
        if kill.pid == pid and kill.when_s >= started_s:
            return _oom_killed(kill, *certain)
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
        reason="killed",
        likely=likely,
        was_killed=True,
        by_memory=bool(likely),
        by_cgroup=bool(in_cgroup),
    )


def _oom_killed(kill: KernelKill, *certain: str) -> Ending:
    """The end of a process of which the kernel says that it has killed it."""
    why = _CGROUP_FULL if kill.is_cgroup else _MACHINE_FULL
    return Ending(
        certain=(*certain, f"{KILLED_BY_OOM}: {why} ({kill.line})."),
        reason="oom_killed",
        was_killed=True,
        by_memory=True,
        by_cgroup=kill.is_cgroup,
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
