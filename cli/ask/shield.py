"""A child process for work that may crash: the SQL engine dies of some statements.

Rules of this file: to be called while the process is small and has one thread, before anything
heavy is imported.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from types import FrameType

import click

from ...errors import SqlWorkerDied
from ...linux.limited_memory import have_small_stacks
from ...safety.parent_death import end_with_parent
from ..output import terminal

_ADDRESS_SPACE = 8 << 30
"""More than an answer needs, less than a machine has: some statements ignore every other limit."""

_HEARD_S = 0.3
"""How long a child that got the same Ctrl-C may take to end."""


class LeftToChild(click.exceptions.Exit):
    """The parent's exit, after its child has done the work."""


_heard: list[float] = []
"""When a child was interrupted."""
_here: list[int] = []
"""The number of this process, where it is such a child."""


def go_on_in_a_child() -> None:
    """Fork; the child returns from here, the parent waits for it and leaves with its exit code.

    A child stays in itself. One whose parent is killed ends with it.

    Raises:
        SqlWorkerDied: In the parent, when a signal ended the child.
        LeftToChild: In the parent, in every other case.
    """
    if os.getpid() in _here:
        return
    was_waiting = terminal.ways.waiting is not None
    terminal.stop_waiting()  # a thread does not survive the fork
    parent, child = os.getpid(), os.fork()
    if child == 0:
        end_with_parent(parent)
        _here.append(os.getpid())
        signal.signal(signal.SIGINT, _interrupt_once)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        with contextlib.suppress(ValueError, OSError):  # it is lower already
            resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, hard))
        have_small_stacks()
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if was_waiting:
            terminal.start_waiting()
        return
    status = _wait(child)
    terminal.ways.output = None  # the child has written that file, or had nothing for it
    if os.WIFSIGNALED(status):
        raise SqlWorkerDied(f"signal {os.WTERMSIG(status)}")
    raise LeftToChild(os.WEXITSTATUS(status))


def _interrupt_once(_: int, __: FrameType | None) -> None:
    """Ctrl-C, which comes here and then from the parent, too: once."""
    if not is_heard_again():
        raise KeyboardInterrupt


def is_heard_again() -> bool:
    """Whether a Ctrl-C is one that has come here before, and now from the parent."""
    now = time.monotonic()
    is_again = os.getpid() in _here and bool(_heard) and now - _heard[-1] < 2 * _HEARD_S
    _heard.append(now)
    return is_again


def _wait(child: int) -> int:
    """The child's status. Ctrl-C reaches both and the child answers; a lone signal is passed on."""
    ends = os.WEXITED | os.WNOWAIT  # it stays to be asked again: Ctrl-C may take the answer away
    while True:
        try:
            os.waitid(os.P_PID, child, ends)
            break
        except KeyboardInterrupt:
            time.sleep(_HEARD_S)
            if os.waitid(os.P_PID, child, ends | os.WNOHANG) is None:
                os.kill(child, signal.SIGINT)
    return os.waitpid(child, 0)[1]
