"""Takes the frames of ours out of the traceback of an exception that ends a program or a thread.

Rules of this file: as `exception_record`, it runs when a process is about to end. What stays is
what the program would have shown without us; an exception that begins in code of ours is left
whole.
"""

from __future__ import annotations

import os
from types import TracebackType

_SOURCES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "sources", "")
_MAX_LINKS = 100


def leave_out(value: BaseException) -> None:
    """Take them out of an exception and of those that led to it."""
    pending, seen = [value], set[int]()
    while pending and len(seen) < _MAX_LINKS:
        link = pending.pop()
        if id(link) not in seen:
            seen.add(id(link))
            _shorten(link.__traceback__)
            before = (link.__cause__, link.__context__, *parts_of(link))
            pending += [one for one in before if one is not None]


def parts_of(value: BaseException) -> tuple[BaseException, ...]:
    """The exceptions in a group, as of an ``asyncio.TaskGroup``; none of any other exception."""
    # By name: before Python 3.11 it is a class of a package.
    is_group = any(kind.__name__ == "BaseExceptionGroup" for kind in type(value).__mro__)
    parts = getattr(value, "exceptions", ()) if is_group else ()
    return parts if isinstance(parts, tuple) else ()


def _shorten(traceback: TracebackType | None) -> None:
    """Take them out of one traceback; the first frame is whoever caught the exception, or its end.

    A run of them at the end is where the exception began, and stays.
    """
    while traceback is not None:
        following = traceback.tb_next
        while following is not None and _is_ours(following):
            following = following.tb_next
        if following is None:
            return
        traceback.tb_next = following
        traceback = following


def _is_ours(traceback: TracebackType) -> bool:
    """Whether it is a frame of what records a training."""
    return traceback.tb_frame.f_code.co_filename.startswith(_SOURCES)
