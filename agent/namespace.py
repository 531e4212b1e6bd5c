"""The names that code sent by `eval` can use.

Rules of this file: names only; nothing is imported, nothing is run. A name is looked for in
the live ``__main__``, then in the locals of the training thread's frames from the inside out,
then among what was seen in recorded calls (`model`, `optimizer`). What the code assigns goes
into ``__main__``.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

_NOT_THE_USERS = ("torch.", "probing.")


class LiveGlobals(dict[str, Any]):
    """Globals that read through to ``__main__`` and, behind it, to other names.

    Python asks `__missing__` for every global of a dict subclass that is not in it.
    """

    def __init__(self, main: dict[str, Any], behind: Mapping[str, Any]) -> None:
        super().__init__(__builtins__=builtins)
        self._main = main
        self._behind = behind

    def __missing__(self, name: str) -> Any:
        return self._main[name] if name in self._main else self._behind[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._main[name] = value

    def __delitem__(self, name: str) -> None:
        del self._main[name]

    def __contains__(self, name: object) -> bool:
        return name in self._main or name in self._behind

    def settle(self) -> None:
        """Move what a ``global`` statement stored past `__setitem__` into ``__main__``."""
        for name, value in list(dict.items(self)):
            if name != "__builtins__":
                self._main[name] = value


def globals_for(code: CodeType, thread_id: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """The globals to run code in: ``__main__`` itself whenever it has all the names.

    Args:
        thread_id: The training thread's number in the kernel; 0 for the main thread.
        found: Names that recorded calls have shown, such as ``model``.
    """
    main = sys.modules["__main__"].__dict__
    missing = {n for n in _names_in(code) if n not in main and not hasattr(builtins, n)}
    if missing:
        behind = {**found, **_frame_locals(thread_id)}
        if missing & behind.keys():
            return LiveGlobals(main, behind)
    return main


def _names_in(code: CodeType) -> Iterator[str]:
    """Every name that code, or a function defined in it, looks up by name."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _frame_locals(thread_id: int) -> dict[str, Any]:
    """The locals of a thread's own frames; those of inner frames hide those of outer ones."""
    frame = frame_of(thread_id)
    names: dict[str, Any] = {}
    while frame is not None:
        module = frame.f_globals.get("__name__", "") or ""
        if not f"{module}.".startswith(_NOT_THE_USERS):
            for name, value in frame.f_locals.items():
                names.setdefault(name, value)
        frame = frame.f_back
    return names


def frame_of(thread_id: int) -> FrameType | None:
    """The innermost frame of a thread, by its kernel number; 0 means the main thread."""
    thread = threading.main_thread()
    for candidate in threading.enumerate():
        if candidate.native_id == thread_id:
            thread = candidate
    return sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - as its docs say
