"""Which processes have the other end of the pipe or the socket that a thread reads from.

Rules of this file: reads the kernel's lists only, and opens no end of anybody's. What it may not
see, as of other users, is not there.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Iterator

from ....linux.process import threads

_READS = re.compile(r"p?read(v|64)?|recv\w*")
_END = re.compile(r"(pipe|socket):\[(\d+)\]$")
_DIAGNOSES, _BY_FAMILY, _REQUEST = 4, 20, 1
"""The kernel's ``NETLINK_SOCK_DIAG``, ``SOCK_DIAG_BY_FAMILY`` and ``NLM_F_REQUEST``."""
_HEADER, _ASKED, _TOLD = struct.Struct("=IHHII"), struct.Struct("=BBHIIIII"), 16
_SHOW_PEER, _PEER, _ANY = 4, 2, 0xFFFFFFFF
_ATTRIBUTE = struct.Struct("=HH")
_LIMIT_S = 0.5


def read_from(pid: int, thread_id: int) -> str | None:
    """What a thread is waiting for data from: ``pipe:[7]`` or ``socket:[7]``; None if for none."""
    facts = threads(pid, {thread_id}).get(thread_id)
    call = facts.call if facts is not None and facts.state in "SD" else None
    if call is None or not _READS.fullmatch(call.name) or not _END.fullmatch(call.file or ""):
        return None
    return call.file


def writers(end: str, *, but: int) -> list[int] | None:
    """The processes that can write what is read from a pipe or a socket, the lowest first.

    Args:
        end: As `read_from` tells it.
        but: The process that reads, which may have the other end, too.

    Returns:
        None where the other end is not known, as of a socket to another machine.
    """
    found = _END.fullmatch(end)
    if found is None:
        return None
    kind, number = found[1], int(found[2])
    if kind == "socket":
        peer = _peer_of(number)
        if not peer:
            return None
        number = peer
    wanted = f"{kind}:[{number}]"
    return [pid for pid in _others(but) if _can_write(pid, wanted, is_pipe=kind == "pipe")]


def _others(but: int) -> Iterator[int]:
    for number in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        if number not in {but, os.getpid()}:
            yield number


def _can_write(pid: int, wanted: str, *, is_pipe: bool) -> bool:
    """Whether a process has that end open; of a pipe, both bear the same number."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:  # it has gone, or is another user's
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") == wanted:
                mode = os.lstat(f"{folder}/{name}").st_mode
                if not is_pipe or mode & stat.S_IWUSR:
                    return True
        except OSError:
            continue
    return False


def _peer_of(number: int) -> int | None:
    """The other end of a Unix socket; None where it has none, or the kernel does not tell."""
    question = _ASKED.pack(socket.AF_UNIX, 0, 0, _ANY, number, _SHOW_PEER, _ANY, _ANY)
    header = _HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAGNOSES) as kernel:
            kernel.settimeout(_LIMIT_S)
            kernel.send(header + question)
            answer = kernel.recv(1 << 14)
    except OSError:
        return None
    if len(answer) < _HEADER.size or _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    place = _HEADER.size + _TOLD
    while place + _ATTRIBUTE.size <= len(answer):
        length, kind = _ATTRIBUTE.unpack_from(answer, place)
        if kind == _PEER and length >= _ATTRIBUTE.size + 4:
            return int.from_bytes(answer[place + 4 : place + 8], sys.byteorder)
        place += max(4, (length + 3) & ~3)
    return None
