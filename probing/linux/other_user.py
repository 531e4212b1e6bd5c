"""Touches files as the user of another process does, though it is root that asks.

Rules of this file: operator's side only. A process says itself where its run folder is to be, so
root has no more of a right to make it there than the process's own user: no place that only root
may write to is written to, however its links are turned meanwhile. The kernel keeps these rights
for each thread, so the rest of the program goes on as root; nothing is to be started inside.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator

from ..errors import NoPermission
from .process import User

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""The C library's own function would change all threads."""
_CAPABILITIES_VERSION = 0x20080522
_WORDS = 6

_libc = ctypes.CDLL(None, use_errno=True)
_Words = ctypes.c_uint32 * _WORDS


@contextlib.contextmanager
def acting_as(user: User | None) -> Iterator[None]:
    """Have this thread touch files with the rights of a user, and no other.

    Args:
        user: None for this process's own.

    Raises:
        NoPermission: This process may not.
    """
    if user is None:
        yield
        return
    kept = _capabilities()
    own = User(uid=os.geteuid(), gid=os.getegid(), groups=tuple(os.getgroups()))
    try:
        if not _become(user):
            raise NoPermission(
                f"files of user {user.uid} can only be touched as that user, which this process"
                " cannot become",
                help=f"Ask as that user, `sudo -u '#{user.uid}' probing ...`, or as root with the"
                " capabilities SETUID and SETGID.",
            )
        _set_capabilities((0, *kept[1:3], 0, *kept[4:]))  # they would open what files do not
        yield
    finally:
        _set_capabilities(kept)
        _become(own)
        _set_capabilities(kept)


def _become(user: User) -> bool:
    """Take a user's rights to files; returns whether that was let be."""
    numbers = (ctypes.c_uint32 * len(user.groups))(*user.groups)
    number = _SETGROUPS.get(platform.machine())
    if number is None or _libc.syscall(number, len(user.groups), numbers) != 0:
        return False
    for change, wanted in ((_libc.setfsgid, user.gid), (_libc.setfsuid, user.uid)):
        change(ctypes.c_uint32(wanted))
        if change(ctypes.c_uint32(0xFFFFFFFF)) != wanted:  # which changes nothing, and tells
            return False
    return True


def _capabilities() -> tuple[int, ...]:
    """Of this thread: twice 32 bits of those in force, of those allowed, of those inherited."""
    head, words = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), _Words()
    if _libc.capget(head, words) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities of this process are not known")
    return tuple(words)


def _set_capabilities(words: tuple[int, ...]) -> None:
    head = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    if _libc.capset(head, _Words(*words)) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities of this process cannot be changed")
