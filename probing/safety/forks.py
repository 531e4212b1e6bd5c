"""What happens when the process forks, and how long it is held back from that.

Rules of this file: Python forgets no function that was given to `os.register_at_fork`, so those
below are given in the life of a process once, refer to nothing, and do nothing while there is no
agent. This module is what stays behind when the agent leaves, so that the next one finds them
registered; hence it imports nothing of ours and what it offers never changes. It is also sent to a
process that is attached to, before anything is imported there: so it stands alone, is plain ASCII,
and imports at its top only what every Python has loaded.
"""

# ruff: noqa: PLW0603 - one per process, as the registry is

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False  # `typing` may not be loaded there
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LONGEST_WAIT_S = 5.0
_BRIEF_S = 0.05
_LOCKED_AT_FORKS = {"logging": "_lock", "concurrent.futures.thread": "_global_shutdown_lock"}
"""Modules that have functions of this kind, too, and the lock that they take before a fork."""
_OURS = "probing-"
"""How the names of the agent's threads begin."""

_busy = _thread.RLock()
_gate = _thread.RLock()
"""Passed on the way to it, or those that fork all the time would always be first."""
_taken = 0  # how often the thread that forks has taken the lock for its fork
_holder = 0  # the thread that holds it, but for a fork
_importing: set[int] = set()  # while a fork goes on: the threads whose imports are ours
_late: list[str] = []  # of those modules: what has given its functions after ours
_called: dict[int, int] = {}  # by thread that forks: how often `_before` was called for its fork
_in_child: Callable[[], None] | None = None
_is_registered = False
_is_settled = False


def watch(in_child: Callable[[], None]) -> None:
    """From now on call a function in every forked child, before anything else runs there."""
    global _in_child
    _in_child = in_child


def forget() -> None:
    """Call nothing any more."""
    global _in_child
    _in_child = None


class held_back:  # noqa: N801 - as a function that makes a context, which needs an import
    """While this lasts a fork waits, a few seconds at most; so does who asks for the same.

    A child that is born while another thread imports something finds that import unfinished for
    ever, and waits for ever when it imports the same; and what is half started or half stopped
    could not be told apart in it.
    """

    def __init__(self, *, timeout_s: float = -1) -> None:
        """Prepare to wait.

        Args:
            timeout_s: How long to wait for those who have asked before; then it is gone without.
        """
        self._timeout_s = timeout_s
        self._lock: _thread.RLock | None = None
        self._before = 0

    def __enter__(self) -> None:
        global _holder
        lock = _busy
        if not _is_registered:
            _register()
        # Not by the gate where it has the lock already: who keeps that may wait for the lock.
        gate = lock if _has_taken(lock) else _gate
        if not gate.acquire(timeout=self._timeout_s):
            return
        try:
            if lock.acquire(timeout=self._timeout_s):
                self._lock, self._before = lock, _holder
                _holder = _thread.get_ident()
        finally:
            gate.release()
        # The first import of threading makes its thread the main one: it is not made here.
        if self._lock is not None and not _is_settled and "threading" in sys.modules:
            _settle()

    def __exit__(self, *_: object) -> None:
        global _holder
        if self._lock is not None:
            _holder = self._before
            self._lock.release()


def _register() -> None:
    """Have Python call the functions below at every fork."""
    global _is_registered
    with _busy:
        if not _is_registered:
            os.register_at_fork(
                before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
            )
            _is_registered = True


def _settle() -> None:
    """Have the functions of other modules that take a lock be called behind ours.

    Or they would keep it while the fork waits here, and whoever is waited for may need it. So ours
    are given once more behind those, which are not given before those modules are loaded.
    """
    global _is_settled
    _is_settled = True
    missing = [name for name in _LOCKED_AT_FORKS if name not in sys.modules]
    if not missing:
        return
    real, given = os.register_at_fork, []
    os.register_at_fork = lambda **functions: given.append(functions)
    try:
        for name in missing:
            _try_import(name)
    finally:
        os.register_at_fork = real
    for functions in given:
        os.register_at_fork(**functions)
    _late.extend(missing)
    os.register_at_fork(before=_before, after_in_parent=_let_go)


def _try_import(name: str) -> None:
    try:
        __import__(name)
    except Exception:  # noqa: BLE001 - then it takes no lock
        return


def _before() -> None:
    """The calling thread is about to fork."""
    global _taken, _importing
    own = _thread.get_ident()
    _called[own] = _called.get(own, 0) + 1
    is_first = _called[own] == 1  # of two, perhaps: else it has the lock, or has waited in vain
    if is_first and not _has_taken(_busy) and _gate.acquire(timeout=_LONGEST_WAIT_S / 2):
        _gate.release()
    if (is_first or _has_taken(_busy)) and _busy.acquire(timeout=_LONGEST_WAIT_S / 2):
        _taken += 1
    threads = getattr(sys.modules.get("threading"), "_active", {})  # to ask it takes a lock
    # Not by `name`: a class of the program's may have made something else of it.
    names = [(ident, getattr(it, "_name", "")) for ident, it in list(threads.items())]
    _importing = {ident for ident, name in names if str(name).startswith(_OURS)}


def _after_in_parent() -> None:
    """The fork is done, or has failed."""
    if _called.pop(_thread.get_ident(), 0) < 2:
        # Where others came while the fork waited, their functions before it were not called, but
        # those behind it will be, and give back the locks.
        for name in _late:
            lock = getattr(sys.modules.get(name), _LOCKED_AT_FORKS[name], None)
            if lock is not None and not _has_taken(lock):
                lock.acquire(timeout=_BRIEF_S)
    _let_go()


def _let_go() -> None:
    """Give the lock back, if it was got."""
    global _taken
    if _taken and _has_taken(_busy):
        _taken -= 1
        _busy.release()


def _has_taken(lock: Any) -> bool:
    """Whether the calling thread has a lock that it could take once more."""
    return hasattr(lock, "_is_owned") and bool(lock._is_owned())  # noqa: SLF001 - as threading asks


def _after_in_child() -> None:
    """This is the child, whose only thread is the one that forked."""
    global _busy, _gate, _taken
    _busy, _gate, _taken = _thread.RLock(), _thread.RLock(), 0
    _called.clear()
    _forget_unfinished()
    if _in_child is not None:
        _in_child()


def _forget_unfinished() -> None:
    """Have the child import from the beginning what we were in the middle of importing.

    There is such a thing where the fork has waited as long as it may, or had begun before ours was
    here to make it wait.
    """
    ours = {*_importing, _holder} - {_thread.get_ident()}
    for name, owner in _unfinished():
        if owner in ours:
            sys.modules.pop(name, None)
            _module_locks().pop(name, None)


def _unfinished() -> list[tuple[str, int]]:
    """What is being imported, and the thread that does."""
    found = [(name, getattr(lock(), "owner", None)) for name, lock in list(_module_locks().items())]
    return [(name, owner) for name, owner in found if owner is not None]


def _module_locks() -> dict[str, Callable[[], object]]:
    """Python's own table of the imports that go on."""
    return getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
