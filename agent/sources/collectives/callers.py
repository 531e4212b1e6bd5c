"""Which line of the program led to a collective.

Rules of this file: runs at every collective. Keeps codes, which live as long as their functions,
and never a frame; codes are looked up by identity, because their hash is that of all they consist
of.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any

from ....own_files import OURS

_DEEPEST = 100
_MOST_LINES = 4096
_frame_at = sys._getframe
_USUAL = 2
"""How many frames lie between the program's and ours at most calls: torch's function, and what logs
its exceptions."""
_PROGRAM, _LIBRARY, _PLUMBING = range(3)
_PACKAGES = ("site-packages", "dist-packages")
_TRACED = "<eval_with_key>"
_COMPILED = f"{os.sep}torchinductor_"
"""Where the code lies that torch.compile has made: in no file, or in those of its cache."""


class Callers:
    """Finds the line, and gives it its number."""

    def __init__(self, names: Any) -> None:
        """Begin with no lines.

        Args:
            names: Gives names their numbers.
        """
        self._names = names
        torch = os.path.dirname(os.path.abspath(sys.modules["torch"].__file__ or ""))
        self._plumbing = (
            *OURS,
            os.path.join(torch, "distributed", "distributed_c10d.py"),
            os.path.join(torch, "distributed", "c10d_logger.py"),
            os.path.join(torch, "_ops.py"),
        )
        standard = os.path.dirname(os.__file__)
        self._libraries = (torch, standard, "<frozen", _TRACED)
        self._kinds: dict[int, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._sites: dict[tuple[int, int], tuple[CodeType, CodeType, int]] = {}
        self._codes: list[CodeType] = []  # so that no other code gets the number of one

    def line_at(self, innermost: int) -> int:
        """As `line`, from the frame that lies so deep below this one.

        Two frames are looked at where the site is known, as each costs: torch's function, and the
        third, the program's. What lies between them is what torch puts around that function.
        """
        try:
            code, outer = _frame_at(innermost).f_code, _frame_at(innermost + _USUAL)
            site = self._sites.get((id(outer.f_code), outer.f_lasti))
            if site is not None and site[0] is code:
                return site[2]
        except ValueError:  # there are not so many
            pass
        return self.line(_frame_at(innermost))

    def line(self, frame: FrameType | None) -> int:
        """The number of the innermost line of the program, from a frame outwards.

        Where there is none within reach, that of the library which called for the collective.
        """
        if frame is None:
            return 0
        code = frame.f_code
        inner = frame.f_back
        if inner is not None and (outer := inner.f_back) is not None:
            site = self._sites.get((id(outer.f_code), outer.f_lasti))
            if site is not None and site[0] is code and site[1] is inner.f_code:
                return site[2]
        return self._find(frame)

    def _find(self, start: FrameType) -> int:
        """The same, the long way; remembered where the third frame is the first of the program."""
        kinds, library, deep = self._kinds, None, 0
        frame: FrameType | None = start
        while frame is not None and deep < _DEEPEST:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = self._kind_of(code)
            if kind == _PROGRAM:
                number = self._number(frame)
                if deep == _USUAL and start.f_back is not None:
                    site = (start.f_code, start.f_back.f_code, number)
                    self._sites[id(code), frame.f_lasti] = site
                return number
            if kind == _LIBRARY and library is None:
                library = frame
            frame, deep = frame.f_back, deep + 1
        return 0 if library is None else self._number(library)

    def _number(self, frame: FrameType) -> int:
        """The number of the line that a frame is at."""
        key = (id(frame.f_code), frame.f_lasti)
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= _MOST_LINES:
                self._numbers.clear()
                self._sites.clear()
            if id(frame.f_code) not in self._kinds:  # forgotten on the way to it
                self._kind_of(frame.f_code)
            name = os.path.basename(frame.f_code.co_filename)
            number = self._names.intern(f"{name}:{frame.f_lineno}")
            self._numbers[key] = number
        return int(number)

    def _kind_of(self, code: CodeType) -> int:
        """Whose code it is."""
        path = code.co_filename
        if path.startswith(self._plumbing):
            kind = _PLUMBING
        elif (
            any(f"{os.sep}{name}{os.sep}" in path for name in _PACKAGES)
            or path.startswith(self._libraries)
            or _COMPILED in path
        ):
            kind = _LIBRARY
        else:
            kind = _PROGRAM
        if len(self._codes) >= _MOST_LINES:
            self._kinds.clear()
            self._numbers.clear()
            self._sites.clear()
            self._codes.clear()
        self._codes.append(code)
        self._kinds[id(code)] = kind
        return kind
