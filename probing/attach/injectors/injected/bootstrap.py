"""Runs inside the process that is attached to: brings the agent there.

Rules of this file: its text is sent, not imported, with one call of `begin` behind it; so it stands
alone, is plain ASCII, and runs on every Python from 3.10 on. It may be run in any thread at any
moment, so it does next to nothing there: all else happens in a thread of its own. Whatever goes
wrong is left beside the script for the operator, see `probing.rundir.attach_order`; nothing is
raised and nothing is printed.
"""

# ruff: noqa: BLE001, S102, SLF001, UP031 - the rim of the host; threading's own fields; any Python

from __future__ import annotations

import _thread
import os
import sys

_LONGEST = 500
TYPE_CHECKING = False  # `typing` may not be loaded there
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Order(TypedDict):
        """What the operator asks for.

        Attributes:
            pid: The process that is meant.
            script: The file that this text was read from; whoever renames it may go on.
            home: The run directory.
            python: The operator's major and minor version of Python.
            places: Folders of the operator's that hold probing and what it needs.
            uid: The operator's user.
            operator: The operator's process.
            forks: The text of what holds the process back from forking.
        """

        pid: int
        script: str
        home: str
        python: list[int]
        places: list[str]
        uid: int
        operator: int
        forks: str


def begin(order: Order) -> None:
    """Start the agent, once, unless the order has been taken back meanwhile.

    A child that was forked after the code was injected, and before it ran, runs it too.
    """
    if os.getpid() != order["pid"]:
        return
    try:
        os.rename(order["script"], order["script"] + ".begun")
    except OSError:
        return
    try:
        _thread_starter()(_launch, (order,))
    except BaseException as error:
        _end(order, {"error": _sentence(error)})


def _thread_starter() -> Any:
    """What starts a thread of the kernel's.

    In its place gevent and eventlet put what only makes a greenlet of the calling thread, which may
    end at once. As `probing.agent.genuine`, which is not there yet.
    """
    now: Any = _thread.start_new_thread
    if type(now) is type(len):
        return now
    saved = getattr(sys.modules.get("gevent.monkey"), "saved", {}).get("_thread", {})
    if "start_new_thread" in saved:
        return saved["start_new_thread"]
    patcher: Any = sys.modules.get("eventlet.patcher")
    if getattr(patcher, "already_patched", None):
        return patcher.original("_thread").start_new_thread
    return now


def _launch(order: Order) -> None:
    """Go on in a thread that the threading module knows, unless that would make a greenlet of it.

    Nothing is imported but while forks are held back: a child that is born meanwhile would wait
    for ever when it imports the same.
    """
    try:
        with _forks(order).held_back():
            _import_threading()
            import threading

            thread = threading.Thread(
                target=_attach, args=(order,), name="probing-attach", daemon=True
            )
        if _thread_starter() is _thread.start_new_thread:
            thread.start()
        else:
            _attach(order)
    except BaseException as error:
        _end(order, {"error": _sentence(error)})


def _forks(order: Order) -> Any:
    """The module `probing.safety.forks`, which is sent along lest it need be imported."""
    name = "probing.safety.forks"
    if name not in sys.modules:
        module = type(sys)(name)
        exec(order["forks"], module.__dict__)
        return sys.modules.setdefault(name, module)
    return sys.modules[name]


def _attach(order: Order) -> None:
    """The thread: bring the agent in, or say why not."""
    try:
        _end(order, _start(order))
    except BaseException as error:
        _end(order, {"error": _sentence(error)})


def _start(order: Order) -> dict[str, Any]:
    """Start the agent; returns what keeps it from being found, or out; empty when nothing does."""
    added: list[str] = []
    try:
        with _forks(order).held_back():
            missing = _why_missing()
            if missing and list(sys.version_info[:2]) == order["python"]:
                added = [place for place in order["places"] if place not in sys.path]
                sys.path.extend(added)
                missing = _why_missing()
            if missing:
                return {"missing": missing}
            from probing import host

            __import__("probing.agent")  # which `host` would import before forks are held back
        # This loads all that is found there, so that the places can go again: the job's own
        # imports must not begin to find what they did not find before.
        refused = host.start_attached(
            order["home"], places=added, uid=order["uid"], pid=order["operator"]
        )
        return {"refused": refused} if refused else {}
    finally:
        for place in added:
            if place in sys.path:
                sys.path.remove(place)


def _why_missing() -> str:
    """Why the agent cannot be imported; nothing when it can."""
    import importlib.util

    if importlib.util.find_spec("probing") is None:
        return "probing is not installed there"
    if importlib.util.find_spec("probing.agent") is None:
        return "another package called probing is installed there"
    if importlib.util.find_spec("aiohttp") is None:
        return "aiohttp, which the agent needs, is not installed there"
    return ""


def _import_threading() -> None:
    """Import threading, and have it take the right thread for the main one.

    Before Python 3.13 it takes the one that imports it first, which would then be ours.
    """
    if "threading" in sys.modules:
        return
    import threading

    module: Any = threading
    main = module.main_thread()
    if main.ident != _thread.get_ident() or not hasattr(main, "_tstate_lock"):
        return
    # The main thread began first, so its state is the last in the interpreter's list.
    ident = list(sys._current_frames())[-1]
    lock = _thread.allocate_lock()
    lock.acquire()
    del module._active[main._ident]
    with module._shutdown_locks_lock:
        module._shutdown_locks.discard(main._tstate_lock)
        module._shutdown_locks.add(lock)
    main._ident, main._native_id, main._tstate_lock = ident, os.getpid(), lock
    module._active[ident] = main


def _sentence(error: BaseException) -> str:
    """What went wrong, and where."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return type(error).__name__
    where = os.path.basename(place.tb_frame.f_code.co_filename)
    return "%s: %s (%s, line %s)" % (type(error).__name__, error, where, place.tb_lineno)


def _end(order: Order, facts: dict[str, Any]) -> None:
    """Leave word for the operator, whole or not at all, if there is any; then it is over.

    The process may be out of descriptors, and its files limited: a link needs neither.
    """
    try:
        if facts:
            told = {name: str(value)[:_LONGEST] for name, value in facts.items()}
            told["python"] = ".".join(map(str, sys.version_info[:3]))
            told["executable"] = sys.executable[:_LONGEST]
            os.symlink(ascii(told), order["script"] + ".failed")
        os.unlink(order["script"] + ".begun")
    except BaseException:
        return
