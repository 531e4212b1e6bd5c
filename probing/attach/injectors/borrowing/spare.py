"""Where in a process there is room for instructions of ours.

Rules of this file: looks, and changes nothing. The loader maps whole pages, so behind the last
instruction of a library there is some room that is executable and that nobody runs into. What was
put there stays, and is the same for every errand, so that it may be found there again, or a part of
it where somebody was killed while he wrote it.
"""

from __future__ import annotations

from ..refusal import CannotInject
from .elf import EXECUTABLE
from .memory import PAGE, Interpreter

_ALIGNMENT = 16


def room_for_code(interpreter: Interpreter, code: bytes) -> int:
    """The address of a place that holds these instructions, or has room for them.

    Raises:
        CannotInject: There is none.
    """
    size = len(code) + -len(code) % _ALIGNMENT  # they are written by words
    wanted = code.ljust(size, b"\0")
    for image in interpreter.lasting_images():
        for start, end in image.tails(PAGE, EXECUTABLE):
            found = interpreter.memory.read(start, end - start)
            for at in range(0, end - start - size + 1, _ALIGNMENT):
                if _can_hold(found[at : at + size], wanted):
                    return start + at
    raise CannotInject("neither its Python nor its C library has room behind its instructions")


def _can_hold(found: bytes, wanted: bytes) -> bool:
    """Whether a place is empty, or holds a beginning of what is wanted."""
    return all(there in (0, byte) for there, byte in zip(found, wanted, strict=True))
