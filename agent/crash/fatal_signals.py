"""Has a fatal signal leave all threads' stacks in the run folder, by Python's own faulthandler.

Rules of this file: faulthandler belongs to the user. Where it is on already, it is left as it is;
where the user switches it on, off or elsewhere later, that holds. Where anything else handles one
of the signals already, it stays off: it would come first, and what it passes on is no longer the
fault itself but a signal raised anew. Having written its text it puts the default back and raises
the signal again, so that the exit status and the core dump are those of a process without it.

There is one faulthandler per process and no call that tells where it writes. But it keeps a
reference to the file object that it was given, and drops it when it is given another or is
switched off. So nothing here keeps that object but a weak reference: while it lives, faulthandler
is ours.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import weakref
from pathlib import Path

from ...own_files import AGENT

_SIGNALS = (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND
_SIGACTION_ROOM = 512
"""More than a `struct sigaction` takes anywhere; the handler's address is its first member."""

_Handlers = tuple[tuple[object, ...], tuple[int, ...] | None]


class _OurFile:
    """What faulthandler is given to write to; it asks for the descriptor, once."""

    __slots__ = ("__weakref__", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def flush(self) -> None:
        """Nothing is buffered."""


class FatalSignals:
    """The file of the run folder that faulthandler writes to, as long as that is the user's wish.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._inode = 0
        self._file: weakref.ref[_OurFile] | None = None
        self._handlers: _Handlers = ((), None)

    def start(self) -> None:
        """Switch faulthandler on, unless it is on.

        Raises:
            OSError: The file cannot be made.
            RuntimeError: The program handles such signals itself.
        """
        if faulthandler.is_enabled():
            return
        taken = _taken()
        if taken:
            raise RuntimeError(f"the program handles {', '.join(s.name for s in taken)} itself")
        self._fd = os.open(self._path, _CREATE, 0o600)
        self._inode = os.fstat(self._fd).st_ino
        os.write(self._fd, _head())
        file = _OurFile(self._fd)
        self._file = weakref.ref(file)
        with _without_rings():  # what keeps a ring that is cut short from being fatal comes first
            faulthandler.enable(file, all_threads=True)
        self._handlers = _handlers()

    def stop(self) -> None:
        """Put the signals back as they were; also right in a forked child.

        Handlers that somebody has put over faulthandler's since would go, too, if it were
        switched off, or would call one that is no longer there. Then it stays and writes nowhere.
        """
        file, self._file = self._file, None
        if file is None or not self._is_our_descriptor():
            return
        if file() is None:
            os.close(self._fd)
        elif self._is_outermost():
            with _without_rings():
                faulthandler.disable()
            os.close(self._fd)
        else:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self._fd, inheritable=False)
            os.close(nowhere)

    def must_stay(self) -> bool:
        """Whether `stop` will have to leave faulthandler on."""
        is_ours = self._file is not None and self._file() is not None
        return is_ours and not self._is_outermost()

    def _is_outermost(self) -> bool:
        """Whether nobody has put a handler of his own in place since, as far as can be told."""
        now = _handlers()
        addresses = (self._handlers[1], now[1])
        return self._handlers[0] == now[0] and (None in addresses or addresses[0] == addresses[1])

    def _is_our_descriptor(self) -> bool:
        """Whether the descriptor is still that of our file: a daemon closes all it finds."""
        try:
            return os.fstat(self._fd).st_ino == self._inode
        except OSError:
            return False


def _head() -> bytes:
    """The first line of the file: what the reader cannot learn from faulthandler's text."""
    head = {"main": threading.main_thread().ident, "agent": AGENT[0]}
    return json.dumps(head).encode() + b"\n"


def _without_rings() -> contextlib.AbstractContextManager[None]:
    """Meanwhile SIGBUS is not handled by what protects our rings, once there are some."""
    mapped_file = sys.modules.get("probing.ring.mapped_file")
    unguarded = getattr(mapped_file, "unguarded", contextlib.nullcontext)
    given: contextlib.AbstractContextManager[None] = unguarded()
    return given


def _taken() -> list[signal.Signals]:
    """The fatal signals that are caught or ignored, by whomever but what protects our rings."""
    masks = 0
    with _without_rings(), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith((b"SigIgn:", b"SigCgt:")):
                masks |= int(line.split()[1], 16)
    return [number for number in _SIGNALS if masks >> (number - 1) & 1]


def _handlers() -> _Handlers:
    """Who handles the fatal signals: by Python's account, and by C's where ctypes is loaded."""
    with _without_rings():
        return tuple([signal.getsignal(number) for number in _SIGNALS]), _addresses()


def _addresses() -> tuple[int, ...] | None:
    """The addresses of the C handlers; None where they cannot be told without importing ctypes."""
    ctypes = sys.modules.get("ctypes")
    try:
        if ctypes is None:
            return None
        sigaction, found = ctypes.pythonapi["sigaction"], []
        for number in _SIGNALS:
            room = ctypes.create_string_buffer(_SIGACTION_ROOM)
            if sigaction(int(number), None, room) != 0:
                return None
            found.append(int.from_bytes(room.raw[:8], sys.byteorder))
        return tuple(found)
    except Exception:  # noqa: BLE001 - a ctypes that does not work here, or is half imported
        return None
