"""Opens files that another process has written, who may have meant to harm the reader.

Rules of this file: what is no regular file is not so much as opened, so that no pipe is waited at
and no device touched; nothing beyond the size that a file had is read, so that none is without an
end. Whatever is wrong with a file is an `OSError`, as if it could not be read.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib

_O_PATH = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_file(path: str | os.PathLike[str], *, follow_links: bool = False) -> int:
    """A descriptor to read a regular file by.

    Raises:
        OSError: It cannot be opened, or is something else: a link, a pipe, a device, a folder.
    """
    at = os.open(path, _O_PATH if follow_links else _O_PATH | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(at).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        return os.open(f"/proc/thread-self/fd/{at}", _READ)
    finally:
        os.close(at)


def read_file(
    path: str | os.PathLike[str], most_bytes: int, *, follow_links: bool = False
) -> bytes:
    """A whole regular file, as long as it was when it was opened.

    Raises:
        OSError: It cannot be read, is no regular file, or is longer than that.
    """
    fd = open_file(path, follow_links=follow_links)
    try:
        size = os.fstat(fd).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", os.fspath(path))
        data = bytearray()
        while piece := os.read(fd, size - len(data)):
            data += piece
        return bytes(data)
    finally:
        os.close(fd)


def read_end(
    path: str | os.PathLike[str], most_bytes: int, *, owner: int, since_ns: int
) -> bytes | None:
    """The last bytes of a regular file of a user; None where it was written to before only.

    Raises:
        OSError: It cannot be read, is no regular file, or is another user's.
    """
    with open(open_file(path), "rb") as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != owner:
            raise PermissionError(errno.EPERM, "it is another user's", os.fspath(path))
        if facts.st_mtime_ns < since_ns:
            return None
        file.seek(max(0, facts.st_size - most_bytes))
        return file.read(most_bytes)


def unzipped(data: bytes, most_bytes: int) -> bytes:
    """What was gzipped, of which a few bytes may have been made from very many.

    Raises:
        OSError: It is longer than that.
        zlib.error: It was not gzipped, or is cut short.
    """
    unzipping = zlib.decompressobj(wbits=31)
    found = unzipping.decompress(data, most_bytes)
    if unzipping.eof:
        return found
    if unzipping.unconsumed_tail or len(found) == most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes")
    raise zlib.error("it is cut short")
