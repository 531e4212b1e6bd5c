"""One file in the place of many: a reader sees either all of the old ones or the new one.

A query holds a lock that it shares with all readers, from before it lists files until its last row;
files are replaced, or removed, by who has that lock alone, and has shut the gate before it, so that
no query begins while others come to their end. What is being replaced is written down first: who
finds the new file there passes over the old ones, so it does no harm if whoever replaces them is
killed half way, and the next one goes on. Rules of this file: nothing that takes long is done under
the lock. Engines that know nothing of the lock see the folder as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import HistoryBusy
from .files import Shelf, keep_name, read_json, saying_what_failed
from .layout import COMPACTOR, gate_lock, readers_lock, swap_file

_POLL_S = 0.005
_READERS_WAIT_S = 10.0
"""A swap takes a tenth of a second; whoever holds the lock for longer has been stopped half way."""
_HELD_BACK_S, _PAUSE_S = 1.0, 0.5
"""How long queries are held back at once, and how long they are not after that."""


def begin_reading(root: Path) -> int | None:
    """Keep files from being replaced until the number that is returned is closed.

    Returns:
        None where there are no locks.
    """
    gate, fd = (_opened(path) for path in (gate_lock(root), readers_lock(root)))
    is_ours = False
    try:
        if gate is not None and fd is not None:
            until_s = time.monotonic() + _READERS_WAIT_S
            is_ours = _locked(gate, fcntl.LOCK_SH, until_s) and _locked(fd, fcntl.LOCK_SH, until_s)
    finally:
        if gate is not None:
            os.close(gate)
        if fd is not None and not is_ours:
            os.close(fd)
    return fd if is_ours else None


@contextlib.contextmanager
def reading(root: Path) -> Iterator[None]:
    """Keep files from being replaced meanwhile."""
    fd = begin_reading(root)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


@contextlib.contextmanager
def replacing(root: Path, *, wait_s: float) -> Iterator[None]:
    """Be alone: no query reads, and none begins.

    Queries that follow each other without a gap are held back for a moment, again and again.

    Raises:
        HistoryBusy: One of them went on all the time.
        HistoryUnwritable: There can be no lock.
    """
    until_s = time.monotonic() + wait_s
    with saying_what_failed(root), contextlib.ExitStack() as held:
        readers_lock(root).parent.mkdir(parents=True, exist_ok=True)
        gate, readers = (_made(path, held) for path in (gate_lock(root), readers_lock(root)))
        while not _both(gate, readers, until_s):
            fcntl.flock(gate, fcntl.LOCK_UN)
            if time.monotonic() >= until_s:
                raise HistoryBusy(f"the history {root} is being read")
            time.sleep(_PAUSE_S)
        yield


def _both(gate: int, readers: int, until_s: float) -> bool:
    """Whether nobody reads any more, a moment after none could begin."""
    if not _locked(gate, fcntl.LOCK_EX, until_s):
        return False
    return _locked(readers, fcntl.LOCK_EX, min(until_s, time.monotonic() + _HELD_BACK_S))


def _made(path: Path, held: contextlib.ExitStack) -> int:
    """A lock to be had alone."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    held.callback(os.close, fd)
    return fd


def _opened(path: Path) -> int | None:
    """A lock to be shared; None where it cannot be."""
    try:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None


def replace(root: Path, new: Path, final: Path, old: Sequence[Path]) -> None:
    """Put a file where it is seen and remove those that it stands for; only within `replacing`.

    Args:
        new: Where the file is, on the disk already.

    Raises:
        HistoryUnwritable: It cannot be; then nothing is changed, or the rest is done by `finish`.
    """
    told = {"new": _name(root, final), "old": [_name(root, path) for path in old]}
    Shelf(root, COMPACTOR).put_json(swap_file(root), told)
    with saying_what_failed(root):
        os.replace(new, final)
        keep_name(final.parent)
    finish(root)


def is_begun(root: Path) -> bool:
    """Whether there is something to `finish`."""
    return swap_file(root).exists()


def finish(root: Path) -> None:
    """Do the rest of what was begun; only within `replacing`."""
    path = swap_file(root)
    with saying_what_failed(root):
        for old in replaced(root):
            old.unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def replaced(root: Path) -> frozenset[Path]:
    """The files that another one stands for, though they are still there.

    Raises:
        DamagedHistory: What was written down of it is damaged.
    """
    told = read_json(swap_file(root))
    if told is None or not (root / told["new"]).exists():
        return frozenset()
    return frozenset(root / name for name in told["old"])


def _locked(fd: int, how: int, until_s: float) -> bool:
    """Whether a lock could be had in time, and at all."""
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(_POLL_S)
        except OSError:  # this file system has no locks
            if how == fcntl.LOCK_SH:
                return False
            raise
        else:
            return True


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
