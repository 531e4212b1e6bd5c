"""What happens when the process forks, and how long it is held back from that.

Rules of this file: Python forgets no function that was given to `os.register_at_fork`, so those
below are given once in the life of a process, refer to nothing, and do nothing while there is no
agent. This module is what stays behind when the agent leaves, so that the next one finds them
registered; hence it imports nothing of ours and what it offers never changes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

_LONGEST_WAIT_S = 5.0
_busy = threading.RLock()
_forking: int | None = None  # the thread that has taken the lock for its fork
_in_child: Callable[[], None] | None = None
_is_registered = False


def watch(in_child: Callable[[], None]) -> None:
    """From now on call a function in every forked child, before anything else runs there."""
    global _in_child  # noqa: PLW0603 - one per process, as the registry is
    _in_child = in_child


def forget() -> None:
    """Call nothing any more."""
    global _in_child  # noqa: PLW0603 - see above
    _in_child = None


@contextlib.contextmanager
def held_back(*, timeout_s: float = -1) -> Iterator[None]:
    """While this lasts a fork waits, a few seconds at most; so does who asks for the same.

    A child that is born while another thread imports something finds that import unfinished for
    ever, and waits for ever when it imports the same; and what is half started or half stopped
    could not be told apart in it.

    Args:
        timeout_s: How long to wait for those who have asked before; then it is gone without.
    """
    _register_once()
    lock = _busy
    is_ours = lock.acquire(timeout=timeout_s)
    try:
        yield
    finally:
        if is_ours:
            lock.release()


def _register_once() -> None:
    """Have Python call the functions below at every fork."""
    global _is_registered  # noqa: PLW0603 - see above
    if not _is_registered:
        # It has functions of this kind, too. Registered after ours they would be called before
        # it, and its lock kept while the fork waits here; registered while a fork waits here, they
        # would give back a lock that they have not taken.
        import logging  # noqa: F401

        _is_registered = True
        os.register_at_fork(
            before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
        )


def _before() -> None:
    """The calling thread is about to fork."""
    global _forking  # noqa: PLW0603 - see above
    if _busy.acquire(timeout=_LONGEST_WAIT_S):
        _forking = threading.get_ident()


def _after_in_parent() -> None:
    """The fork is done, or has failed."""
    global _forking  # noqa: PLW0603 - see above
    if _forking == threading.get_ident():
        _forking = None
        _busy.release()


def _after_in_child() -> None:
    """This is the child, whose only thread is the one that forked."""
    global _busy, _forking
    _busy, _forking = threading.RLock(), None
    if _in_child is not None:
        _in_child()
