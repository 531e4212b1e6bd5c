"""The liveness lock of a process in a shared run directory, held also during a hang.

Rules of this file: the agent loads it at its start. A run directory may lie on a disk that several
machines share, where no pid and no socket of another machine tells anything. A lock on a file does:
the kernel keeps it as long as the process lives, with no help of the process, and the disk tells
everybody. It is a lock of the process and not of the descriptor: a forked child has none of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from ..rundir.folders import ProcessFolder

_CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def has_gone(folder: ProcessFolder) -> bool:
    """Whether the folder of a running agent was removed, as a login's is with the last login.

    Whoever attaches may have made it again; the agent's own files are there no more.
    """
    for path in (folder.held, folder.socket):
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        except OSError:  # that it cannot be looked at is no sign that it has gone
            return False
        return False
    return True


class Hold:
    """The lock on the folder of this process."""

    def __init__(self) -> None:
        self._fd = -1

    def take(self, folder: ProcessFolder) -> None:
        """Take it; where the disk has no locks, the record is kept until somebody removes it.

        Raises:
            OSError: There is no room for the file.
        """
        self._fd = os.open(folder.held, _CREATE, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            folder.held.unlink(missing_ok=True)

    def let_go(self) -> None:
        """Close the file, and with it the lock; in a forked child that changes nothing of it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)
