"""How an ended process ended, as far as memory may have had to do with it.

Rules of this file: operator's side. What is certain is told apart from what is likely: a process
that the kernel kills leaves no word, so all there is are its last rows, and what the kernel still
says. `judge` is a pure function of what `ending_of` has read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from ..linux import process
from ..messages.card import FAILED_START, TAKEN_OUT, Card
from ..messages.frozen import dataclass
from ..rundir import numbers
from ..rundir.folders import ProcessFolder
from .crashes import SIGNAL, THREAD_EXCEPTION, CrashRecord, describe, read_crash
from .error_files import written_error
from .exits import exit_call, exit_of
from .kernel_log import KernelKill, logged_kills
from .launcher_logs import LauncherWord, launcher_word
from .memory_signs import (
    KILLED_BY_OOM,
    MACHINE_FULL,
    CgroupNow,
    Row,
    cgroup_now,
    counted,
    has_killed_none,
    near_full,
    near_limit,
)
from .terminations import CODE, WORDS, termination_of

ORDERLY = "It ended in an orderly way"
WORDLESS = "It ended without a word"
UNTOLD = "How it ended nothing tells"
"""How the sentences begin that say so."""
LIKELY = "Likely: "
"""What stands before a sentence that is not certain."""
_CGROUP_FULL = "its cgroup reached its limit"
_EXIT_CODE, _EXIT_0 = "exit code ", "exit code 0"
_MAY_BE_ASKED = frozenset({"exception", "exit_code", "killed", "orderly", "terminated"})
"""The reasons of ends that a SIGTERM before them explains."""
_OF_SIGKILL = frozenset({"wordless", "oom"})
"""The ways to go that leave no word."""
LAST_MEMORY = "SELECT * FROM python.memory ORDER BY seq DESC LIMIT 200"
"""The newest rows of python.memory, with the columns that their record has."""

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
Way = Literal["orderly", "left", "wordless", "oom", "untold"]
_NOT_KNOWN, _NO_WORD = "unknown", "no word"


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
        way: How it went, whoever asked for that: ``orderly``; ``left``: by itself and in failure,
            as by `sys.exit(1)`; ``wordless``: as after SIGKILL; ``oom``: so, and likely or for
            certain by the kernel OOM killer; ``untold``: without an agent that could tell. None
            where a crash tells, or nothing.
        brief: It in a few words, as for a column.
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
    way: Way | None = None
    brief: str = _NOT_KNOWN

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is certain and what is likely, each told as what it is."""
        return (*self.certain, *(f"{LIKELY}{sentence}" for sentence in self.likely))


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
    is_moot = ending.way in _OF_SIGKILL and not asked.is_handled
    told = [one for one in ending.certain if asked.is_handled or not one.startswith(WORDLESS)]
    ended_ns = ending.ended_ns if asked.is_handled else asked.when_ns
    return Ending(
        certain=(asked.sentence, *told),
        reason="terminated",
        ended_ns=ended_ns,
        by_sigterm=True,
        asked_by=asked.who,
        way=None if is_moot else ending.way,
        brief=f"{_brief(WORDS)}, {ending.brief}" if asked.is_handled else _brief(WORDS),
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
        reason, brief = _reason_of(crash), crash.type
        return Ending(certain=told, reason=reason, ended_ns=crash.when_ns, brief=brief)
    card = folder.read_card()
    error = written_error(folder, card)
    if error is not None:
        told = (_sentence(error.sentence()),)
        brief = error.text.partition(":")[0]
        return Ending(certain=told, reason="exception", ended_ns=error.when_ns, brief=brief)
    word = launcher_word(folder, card)
    if not folder.socket.exists():
        return _left(folder, card, word)
    if card is not None and card.boot_id != process.boot_id():
        told = ("The machine has been started anew since.",)
        brief = "with its machine"
        return Ending(certain=told, reason="killed", was_killed=True, way="wordless", brief=brief)
    if folder.is_foreign():
        return _elsewhere(folder)
    # The kernel's log has the pids of no other namespace.
    is_here = card is not None and card.pid_namespace == numbers.FIRST
    return _without_word(folder, rows, (kills or logged_kills)() if is_here else (), word)


def _without_word(
    folder: ProcessFolder,
    rows: Sequence[Row],
    found: Sequence[KernelKill],
    word: LauncherWord | None,
) -> Ending:
    """The end of a process that left none, with its exit status, where anybody knows that."""
    cgroup = cgroup_now() if rows else None
    ending = judge(folder.pid, rows, found, cgroup, started_s=_started_s(folder))
    words = process.exit_words(folder.pid, folder.start_time)
    status = f"Its exit status, which its parent has not taken yet, is {words}."
    if words is None:
        if word is None:
            return ending
        words = word.words
        status = f"Its exit status, which its launcher wrote to {word.path}, is {words}."
    certain = (ending.certain[0], status, *ending.certain[1:])
    reason = _reason_with(words, ending.reason)
    way: Way | None = "orderly" if reason == "orderly" else ending.way
    brief = ending.brief if reason == "oom_killed" else _brief(words)
    if reason == "terminated":  # all else is moot
        is_asked = words == WORDS
        return Ending(certain=certain, reason=reason, by_sigterm=is_asked, way=way, brief=brief)
    return replace(ending, certain=certain, reason=reason, way=way, brief=brief)


def _reason_of(crash: CrashRecord) -> Reason:
    """That of a crash that left word."""
    if crash.kind == SIGNAL:
        return "signal"
    return "interrupted" if crash.type == KeyboardInterrupt.__name__ else "exception"


def _reason_with(words: str, otherwise: Reason) -> Reason:
    """That of a process that left by itself, with an exit status in words, if it did."""
    if words in {WORDS, f"{_EXIT_CODE}{CODE}"}:
        return "terminated"
    if not words.startswith(_EXIT_CODE):
        return otherwise
    return "orderly" if words == _EXIT_0 else "exit_code"


def _elsewhere(folder: ProcessFolder) -> Ending:
    """The end of a process of another container, whose agent was told of none."""
    if folder.may_run_elsewhere():
        told = "It belongs to another container: from here nothing tells whether it still runs."
        return Ending(certain=(told,))
    told = "It ran in another container and has ended: how, nothing tells from here."
    return Ending(certain=(told,), reason="killed")


def _left(folder: ProcessFolder, card: Card | None, word: LauncherWord | None) -> Ending:
    """The end of a process whose agent was told of it, or that had no agent at its end."""
    exited = exit_of(folder)
    code, when_ns = exited or (None, None)
    by = exit_call(folder, code) if code else None
    if word is not None and word.code not in {0, code}:
        left = f"It left by itself, without an exception that nobody caught, with {word.words}"
        told = f"{left}, as its launcher wrote to {word.path}."
        return _by_status(told, word.words, way="left")
    if by is not None:
        left = f"It left by itself with exit code {code}, by {by.words}."
        return _by_status(left, f"{_EXIT_CODE}{code}", way="left", ended_ns=when_ns)
    untold = _without_agent(folder, card)
    if untold is None and code:
        left = f"It left by itself with exit code {code}, and no exception of it is on record."
        return _by_status(left, f"{_EXIT_CODE}{code}", way="left", ended_ns=when_ns)
    told = f"{ORDERLY}: its agent was told of the end."
    brief = "orderly" if code is None else _EXIT_0
    return untold or Ending(certain=(told,), reason="orderly", way="orderly", brief=brief)


def _by_status(told: str, words: str, *, way: Way | None, ended_ns: int | None = None) -> Ending:
    """The end of a process whose exit status says how, in words as ``exit code 3``."""
    reason, is_asked = _reason_with(words, "killed"), words == WORDS
    return Ending(
        certain=(told,),
        reason=reason,
        by_sigterm=is_asked,
        ended_ns=ended_ns,
        way=way,
        brief=_brief(words),
    )


def _brief(words: str) -> str:
    """An exit status in a column, by its words."""
    return words.removeprefix("signal ")


def _without_agent(folder: ProcessFolder, card: Card | None) -> Ending | None:
    """The end of a process that no agent has seen; None where one has."""
    if card is None:
        return Ending(certain=(f"{UNTOLD}: it left no card that can be read.",), way="untold")
    for problem in card.problems:
        if problem == TAKEN_OUT or problem.startswith(FAILED_START):
            words = process.exit_words(folder.pid, folder.start_time)
            if words is None:
                return Ending(certain=(f"{UNTOLD}: {problem.rstrip('.')}.",), way="untold")
            is_well = words == _EXIT_0
            told = ORDERLY if is_well else "It ended"
            told = f"{told} with {words}: {problem.rstrip('.')}."
            return _by_status(told, words, way="orderly" if is_well else None)
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
    full = near_limit(rows)
    if full and has_killed_none(rows, cgroup):
        certain.append(
            f"Its cgroup was full, with {full}; but that of this terminal, which has the same"
            " limit, counts no kill."
        )
        full = ""
    in_cgroup = [f"{KILLED_BY_OOM}: {_CGROUP_FULL}. It held {full}."] if full else []
    in_cgroup += counted(rows, cgroup)
    of_machine = near_full(rows)
    likely = (*in_cgroup, *of_machine)
    return Ending(
        certain=tuple(certain),
        reason="killed",
        likely=likely,
        was_killed=True,
        by_memory=bool(likely),
        by_cgroup=bool(in_cgroup),
        way="oom" if full or of_machine else "wordless",
        brief=_NO_WORD,
    )


def _oom_killed(kill: KernelKill, *certain: str) -> Ending:
    """The end of a process of which the kernel says that it has killed it."""
    why = _CGROUP_FULL if kill.is_cgroup else MACHINE_FULL
    return Ending(
        certain=(*certain, f"{KILLED_BY_OOM}: {why} ({kill.line})."),
        reason="oom_killed",
        was_killed=True,
        by_memory=True,
        by_cgroup=kill.is_cgroup,
        way="oom",
        brief="OOM killer",
    )


def _started_s(folder: ProcessFolder) -> float:
    """When a process was started, in seconds since the machine was."""
    return folder.start_time / os.sysconf("SC_CLK_TCK")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
