"""With what code a process exited by itself, and the line of the script that had it do so.

Rules of this file: reads what the agent has left, trusts nothing in it, and any bytes at all give
an exit or none.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import BadRequest
from ..linux import process
from ..linux.foreign_files import read_file
from ..messages.codec import decode, without_checksum
from ..messages.common import Frame
from ..messages.frozen import dataclass
from ..rundir.folders import ProcessFolder
from .crashes import own_place

_MAX_BYTES, _MAX_CODE = 1 << 20, 16
_CODE = re.compile(rb"(\d{1,3})\n")
_BY_STATUS = re.compile(r"exit code (\d{1,3})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCall:
    """A call of `sys.exit` by the main thread.

    Attributes:
        code: What it asks for.
        message: What it has Python print, if anything.
        frames: Where it was called, the innermost first.
    """

    code: int
    message: str | None = None
    step: int | None = None
    frames: tuple[Frame, ...] = ()

    @property
    def words(self) -> str:
        """It as it stands in the script, and where that is known of the program's own, its line."""
        status = self.code if self.message is None else f"{' '.join(self.message.split())!r}"
        place = own_place(self.frames)
        return f"sys.exit({status})" + (f" at {place}" if place else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExitCalls:
    """The last of them in its last step, the oldest first."""

    calls: tuple[ExitCall, ...] = ()


class Exit(NamedTuple):
    """With what code a process exited, and when, since the epoch, where that is known."""

    code: int
    when_ns: int | None = None


def exit_of(folder: ProcessFolder) -> Exit | None:
    """The exit of an ended process, by what it left or what its parent has not taken yet."""
    try:
        found = _CODE.fullmatch(read_file(folder.exit_code, _MAX_CODE))
        when_ns = folder.exit_code.stat().st_mtime_ns
    except OSError:
        found, when_ns = None, 0
    if found is not None:
        return Exit(int(found[1]), when_ns)
    told = _BY_STATUS.match(process.exit_words(folder.pid, folder.start_time) or "")
    return Exit(int(told[1])) if told else None


def exit_call(folder: ProcessFolder, code: int) -> ExitCall | None:
    """The call that had a process exit with a code; None where it called nothing, or none is known.

    What code of a library calls, as `multiprocessing` in a child that has come to its end, comes
    after what the program itself had called.
    """
    try:
        data = read_file(folder.exit_calls, _MAX_BYTES)
        calls = decode(_ExitCalls, without_checksum(data)).calls
    except (OSError, BadRequest):
        return None
    fit = [call for call in reversed(calls) if call.code == code]
    return next((call for call in fit if own_place(call.frames)), next(iter(fit), None))
