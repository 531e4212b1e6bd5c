"""The stacks of a process in whatever state it is: the ladder of ways to them.

    agent        asked first, for one second, unless the process is stopped
    agent+py-spy the same with the frames of C functions, where they were asked for
    py-spy       from outside; with C functions where the agent is silent
    proc         what the kernel tells of each thread, where its memory may not be read
    crash        of a process that has ended: what it wrote as it died
    open rows    of one that could write nothing: the calls that had not returned

Rules of this file: the states of all threads are looked at first, and where one of them is
stopped or in state D nothing is done that would wait for it. What was done, and why, is said in
`notes`, and the answer names its rung.
"""

from __future__ import annotations

import dataclasses
import time

from ..errors import (
    BadRequest,
    ConnectionLost,
    InternalError,
    NoPermission,
    NotAnswering,
    NotProbing,
    NotPython,
    ProbingError,
    ProcessEnded,
)
from ..linux import process
from ..linux.thread_numbers import outer_numbers
from ..messages import common as wire
from ..messages.common import Backtrace
from ..messages.limits import look_s, ready_s
from ..rundir.folders import ProcessFolder
from ..stacks import py_spy, text as stacks
from ..stacks.py_spy import Dump
from ..stacks.waits import GIL_LOOK_S, gil_waiters, own_s
from ..stacks.work_done import work_of
from .address import Address
from .transport import ask

_AGENT_S = 1.0
"""How long to wait for the agent: there is another way to the answer."""
_SLOW_AGENT_S = 5.0
"""How long to wait for it beyond that, where it is seen that Python code runs."""
_NATIVE_S = 10.0
"""How long a dump that pauses the process may take."""
_SECOND_LOOK_S = 0.1
"""After how long a thread that still holds the interpreter lock at the same place is stuck."""
_OWN_S = 0.8 * _SECOND_LOOK_S
"""For how much of that it must not have waited for a processor; the kernel counts in 0.01 s."""


def backtrace_of(
    folder: ProcessFolder, notes: list[str], *, native: bool = False, locals: bool = False
) -> Backtrace:
    """The stacks of a process that has, or had, an agent.

    Args:
        notes: Gets sentences about how they were had.
        native: Also the frames of C functions, for which the process is paused.
        locals: Also the local variables.

    Raises:
        ProcessEnded: It has ended and left nothing to tell.
    """
    if not folder.is_alive():
        return _after_death(folder)
    if (stop := stacks.stop_words(folder.pid)) is not None:
        notes.append(
            f"process {folder.pid} is {stop[0]} ({stop[1]}); its stacks were read from outside"
        )
        return _from_outside(folder.pid, notes, native=native, locals=locals)
    try:
        trace = _ask_agent(folder, locals=locals)
    except NotAnswering:
        return _for_silent_agent(folder, notes, native=native, locals=locals)
    except (NotProbing, ConnectionLost):
        notes.append(
            f"process {folder.pid} has no agent any more; its stacks were read from outside"
        )
        return _from_outside(folder.pid, notes, native=native, locals=locals)
    except BadRequest as error:
        why = error.message.rstrip(".")
        notes.append(
            f"what the agent of process {folder.pid} answers is not understood ({why}); its stacks"
            " were read from outside"
        )
        return _from_outside(folder.pid, notes, native=native, locals=locals)
    return _with_native(trace, notes) if native else trace


def _for_silent_agent(
    folder: ProcessFolder, notes: list[str], *, native: bool, locals: bool
) -> Backtrace:
    """The stacks of a process whose agent did not answer at once.

    Where Python code gets to run in it, the agent is slow and not silent: it may be loading its
    server on a busy machine.
    """
    trace = _from_outside(folder.pid, notes, native=native, locals=locals)
    waited_s = _AGENT_S
    if not _keeps_lock(folder.pid):
        waited_s += _SLOW_AGENT_S
        try:
            answer = _ask_agent(folder, locals=locals, timeout_s=_SLOW_AGENT_S)
        except (NotAnswering, NotProbing, ConnectionLost, BadRequest):
            pass
        else:
            return _with_native(answer, notes) if native else answer
    elif not (native or _frozen(process.threads(folder.pid))):
        # So little gets done in it that a pause does no harm, and the C function is the answer.
        trace = _from_outside(folder.pid, notes, native=True, locals=locals, is_stuck=True)
    notes.append(
        f"the agent of process {folder.pid} did not answer within {waited_s:g} s;"
        " its stacks were read from outside"
    )
    return trace


def backtrace_of_stranger(
    pid: int, notes: list[str], *, native: bool = False, locals: bool = False
) -> Backtrace:
    """The stacks of a process that never had an agent; see `backtrace_of`.

    Raises:
        NotProbed: It is not a Python process.
        ProcessEnded: It is gone.
    """
    if not process.is_python(pid):
        raise NotPython(pid)
    trace = _from_outside(pid, notes, native=native, locals=locals)
    if native or _frozen(process.threads(pid)) or not _keeps_lock(pid):
        return trace
    return _from_outside(pid, notes, native=True, locals=locals, is_stuck=True)


def _keeps_lock(pid: int) -> bool:
    """Whether a thread keeps the interpreter lock at one place, so that no other gets to run.

    One that gets no processor does so, too, until its turn comes: it is looked at until it could
    have gone on.
    """
    before, began = process.threads(pid), time.monotonic()
    first = _holder_place(pid)
    if first is None:
        return False
    holder = first[0]
    while True:
        time.sleep(_SECOND_LOOK_S)
        after, passed_s = process.threads(pid), time.monotonic() - began
        if first != _holder_place(pid):
            return False
        old, new = before.get(holder), after.get(holder)
        if old is None or new is None or own_s(old, new, passed_s) >= _OWN_S:
            return True
        if passed_s > ready_s():
            return False


def _holder_place(pid: int) -> tuple[int, list[tuple[object, ...]]] | None:
    """Which thread holds the interpreter lock, and where in the code it is; None when none does."""
    try:
        threads = py_spy.take(pid, Dump(timeout_s=look_s()))
    except ProbingError:
        return None
    for thread in threads:
        if thread.holds_gil:
            frames = [(frame.func, frame.file, frame.lineno) for frame in thread.frames]
            return thread.thread_id, [(thread.name,), *frames]
    return None


def who_holds_gil(pid: int) -> str | None:
    """Which thread holds the interpreter lock and where, as a clause; None where none is seen."""
    try:
        return look_at_gil(pid)
    except ProbingError:
        return None


def look_at_gil(pid: int) -> str | None:
    """Which thread holds the interpreter lock and where, as a clause; None where none does.

    The process is not paused.

    Raises:
        ProbingError: It could not be looked at, or not in time.
    """
    threads = py_spy.take(pid, Dump(timeout_s=look_s()))
    return stacks.gil_holder(threads, process.threads(pid))


def why_silent(folder: ProcessFolder) -> str:
    """What is known about a live process that does not answer, as a clause."""
    if (stop := stacks.stop_words(folder.pid)) is not None:
        return f"it is {stop[0]}; {stop[1]}"
    holder = who_holds_gil(folder.pid)
    if process.state(folder.pid) == "D":
        kernel = "its main thread is in an uninterruptible wait of the kernel"
        return f"{kernel}; {holder}" if holder else kernel
    return holder or (
        "no Python code gets to run in it: something holds the interpreter lock, or the processor"
    )


def _after_death(folder: ProcessFolder) -> Backtrace:
    """What is last known of an ended process."""
    from ..postmortem.last_known import (
        last_known,
    )  # it needs numpy, which the living can do without

    trace = last_known(folder)
    if trace is None:
        raise ProcessEnded(folder.pid, "it has no stack any more")
    return trace


def _ask_agent(folder: ProcessFolder, *, locals: bool, timeout_s: float = _AGENT_S) -> Backtrace:
    """The stacks as the agent tells them, by the numbers that its threads have here."""
    address = Address(path=folder.socket)
    flags = ("locals",) if locals else ()
    data = ask(address, "backtrace", timeout_s=timeout_s, flags=flags)
    trace = wire.decode(Backtrace, data)
    if trace.pid == folder.pid:
        return trace
    here = outer_numbers(folder.pid)  # it is in a pid namespace of its own
    threads = tuple(
        dataclasses.replace(thread, thread_id=here.get(thread.thread_id, thread.thread_id))
        for thread in trace.threads
    )
    return dataclasses.replace(trace, pid=folder.pid, threads=threads)


def _with_native(trace: Backtrace, notes: list[str]) -> Backtrace:
    """The agent's stacks with the frames of C functions."""
    pid, states = trace.pid, process.threads(trace.pid)
    if frozen := _frozen(states):
        notes.append(_no_pause(frozen))
        return trace
    try:
        outside = py_spy.take(pid, Dump(native=True, timeout_s=_NATIVE_S))
    except (NoPermission, NotAnswering, InternalError) as error:
        notes.append(f"frames of C functions are left out: {_sentence(error)}")
        return trace
    facts = process.threads(pid)
    threads = stacks.complete(stacks.merge(trace.threads, outside), facts, has_native=True)
    return dataclasses.replace(trace, source="agent+py-spy", threads=threads)


def _from_outside(
    pid: int, notes: list[str], *, native: bool, locals: bool, is_stuck: bool = False
) -> Backtrace:
    """The stacks as py-spy reads them, or what the kernel tells."""
    began, before = time.monotonic(), process.threads(pid)
    if native and (frozen := _frozen(before)):
        notes.append(_no_pause(frozen))
        native = False
    error: ProbingError | None = None
    for with_native in (True, False) if native else (False,):
        how = Dump(native=with_native, locals=locals, timeout_s=_NATIVE_S)
        try:
            threads = py_spy.take(pid, how)
        except NoPermission as refusal:
            error = refusal
            break
        except (NotAnswering, InternalError) as failure:
            error = failure
            if with_native:
                notes.append(f"frames of C functions are left out: {_sentence(failure)}")
            continue
        if any(thread.holds_gil for thread in threads):
            time.sleep(max(0.0, began + GIL_LOOK_S - time.monotonic()))
        # py-spy leaves out what Python itself is made of: in a process that is stuck, no C function
        # does not mean that Python code runs.
        has_native = with_native and not is_stuck
        if not any(thread.is_main for thread in threads):
            notes.append(_no_main_thread(pid))
        return _outside_answer(pid, threads, before, has_native=has_native)
    return _from_kernel(pid, error)


def _outside_answer(
    pid: int,
    threads: list[wire.ThreadStack],
    before: dict[int, process.ThreadFacts],
    *,
    has_native: bool,
) -> Backtrace:
    """py-spy's answer, completed."""
    after = process.threads(pid)
    holder = next((thread for thread in threads if thread.holds_gil), None)
    by_agent = holder is not None and stacks.is_agents(holder)  # for as long as it is asked
    return Backtrace(
        pid=pid,
        source="py-spy",
        note=stacks.gil_holder(threads, after),
        work=work_of(pid, [t.thread_id for t in threads if not stacks.is_agents(t)]),
        threads=stacks.complete(
            threads,
            after,
            wants_gil=gil_waiters(before, after) if holder is not None and not by_agent else (),
            has_native=has_native,
            by_agent=by_agent,
        ),
    )


def _from_kernel(pid: int, error: ProbingError | None) -> Backtrace:
    """The last rung of a live process: its threads without frames, and why there are none."""
    facts = process.threads(pid)
    if not facts:
        raise ProcessEnded(pid, "it has no stack any more")
    why = _sentence(error) if error else ""
    note = f"only the kernel tells of it, without a Python frame: {why}"
    threads = stacks.from_kernel(facts, pid)
    return Backtrace(pid=pid, source="proc", threads=threads, note=note, work=work_of(pid, facts))


def _frozen(facts: dict[int, process.ThreadFacts]) -> process.ThreadFacts | None:
    """A thread that whoever waits for it to pause waits for ever, if there is one."""
    return next((fact for fact in facts.values() if fact.state in stacks.FROZEN), None)


def _no_pause(frozen: process.ThreadFacts) -> str:
    """Why no frames of C functions are taken."""
    how = "in an uninterruptible wait" if frozen.state == "D" else "stopped"
    return (
        f"frames of C functions are left out: thread {frozen.thread_id} is {how}, and reading them"
        " would wait for it for ever"
    )


def _no_main_thread(pid: int) -> str:
    """Why the main thread is missing."""
    return (
        f"the main thread of process {pid} is not seen from outside: it runs no Python, or belongs"
        " to another interpreter in the process than the one that py-spy reads; with an agent"
        f" (`probing attach {pid}`) the main interpreter is seen"
    )


def _sentence(error: ProbingError) -> str:
    """An error and what to do about it, behind a colon."""
    return f"{error.message} {error.help}".rstrip() if error.help else error.message
