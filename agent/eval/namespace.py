"""The names that code sent by `eval` can use.

Rules of this file: names only; nothing is imported, nothing is run. A name is looked for in
the live ``__main__``, then in the locals of the training thread's frames from the inside out and
of coroutines that wait, then among what was seen in recorded calls (`model`, `optimizer`). What
was seen comes before the locals of installed packages: a framework's `step` counts something else;
only its `model` is what the user has given it. A frame that the user has chosen comes before all
of these. What the code assigns is its own: code that is sent later sees it, but for that of a
prompt, which is the prompt's; the script does not see it, and a name that the script has is only
hidden by it while the code runs. Where that was asked for,
it goes to the local variable that has the name, or else into ``__main__``. Once the code is done,
nothing of the frames is kept.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from ...own_files import is_installed
from ...safety import other_stacks
from .frame_names import (
    Place,
    describe_frame,
    frames_at,
    has_local,
    locals_of,
    stands_still,
    write_local,
)

_MOST_NAMES = 40
_MOST_CLOSE = 4
_CLOSE = 0.6
_SCRIPT = "the script"
_KNOWN = "seen in recorded calls"
_PYTHON = "of Python"
_SOUGHT = "what probing knows of the training, where it has one"
_USUAL = dict.fromkeys(("lr", "learning_rate", "learningrate"), "optimizer.param_groups[0]['lr']")
"""Names by which something is asked for that has another one in every training."""


class Names:
    """Where names beside those of ``__main__`` come from.

    Args:
        found: Names that recorded calls have shown, such as ``model``.
        last: What ``_`` stands for, where it stands for anything.
        kept: What earlier code has assigned; in a prompt, its own.
        behind: What code outside of prompts has assigned.
        covers: What earlier lines of this prompt have, by names that the script has, too.
        assigns: Whether what is assigned goes into the script.
        is_held: Whether the thread stands still.

    Attributes:
        hidden: The names of the script that the code has assigned, and that are as they were.
    """

    def __init__(
        self,
        place: Place,
        found: Mapping[str, object],
        *,
        last: Mapping[str, object] | None = None,
        kept: dict[str, object] | None = None,
        behind: dict[str, object] | None = None,
        covers: dict[str, object] | None = None,
        assigns: bool = False,
        is_held: bool = False,
    ) -> None:
        self._place = place
        self._found = found
        self._last = last or {}
        self.kept = {} if kept is None else kept
        self._behind = {} if behind is None else behind
        self.covers = {} if covers is None else covers
        self.assigns = assigns
        self.hidden: list[str] = []
        self._is_held = is_held
        self._frames: list[tuple[FrameType, dict[str, Any]]] | None = None
        self._known: dict[str, Any] = {}
        self.main: dict[str, Any] = sys.modules["__main__"].__dict__

    def open(self) -> None:
        """Look at the frames once, for the time that the code runs.

        Raises:
            NoSuchFrame: The frame that was chosen is not there.
        """
        self._frames = self._looked()

    def close(self) -> None:
        """Keep nothing any more; a function that the code has left looks anew when it is called."""
        self._frames, self._is_held, self._last = None, False, {}
        self._known.clear()

    def find(self, name: str) -> Any:  # noqa: C901 - the order of places, in one place
        """What a name stands for.

        Raises:
            KeyError: Nothing.
        """
        if name in self._last:
            return self._last[name]
        if not self._place.is_chosen and name in self.main:
            return self.main[name]
        frames = self._frames if self._frames is not None else self._looked()
        others: list[Any] = []
        for frame, values in frames:
            if name in values:
                if not self._comes_behind(name, frame):
                    return values[name]
                others.append(values[name])
            if self._place.frame is not None and name in frame.f_globals:
                return frame.f_globals[name]
        if name in self.main:
            return self.main[name]
        if name in self.kept:
            return self.kept[name]
        if name in self._behind:
            return self._behind[name]
        try:
            return self._find_known(name)
        except KeyError:
            if not others:
                raise
        return others[0]

    def has(self, name: str) -> bool:
        """Whether a name stands for anything."""
        try:
            self.find(name)
        except KeyError:
            return False
        return True

    def keep(self, name: str, value: object) -> bool:
        """Note what the code has assigned; says whether code that is sent later sees it."""
        if name.startswith("__"):
            return False
        if not self._is_scripts(name):
            self.kept[name] = value
            return True
        if name in self.covers and self.covers[name] is value:
            return False
        if self.find(name) is not value and name not in self.hidden:
            self.hidden.append(name)
            self.covers[name] = value
        return False

    def _is_scripts(self, name: str) -> bool:
        """Whether the script has a name: a global one, or a local one of a frame."""
        frames = self._frames if self._frames is not None else self._looked()
        return name in self.main or any(name in values for _, values in frames)

    def assign(self, name: str, value: object) -> None:
        """Give a name another value, in the script."""
        if self._place.is_chosen or name not in self.main:
            frames = self._frames or []
            for index, (frame, values) in enumerate(frames):
                is_there = name in values or (
                    self._place.frame is not None and has_local(frame, name)
                )
                is_there = is_there and not self._comes_behind(name, frame)
                if is_there and other_stacks.locals_of(frame) is not frame.f_globals:
                    is_held = self._is_held and stands_still(frame, self._place.thread_id)
                    write_local(frame, name, value, is_held=is_held)
                    frames[index][1][name] = value
                    return
        self.main[name] = value

    def delete(self, name: str) -> None:
        """Forget a name that code has assigned, or of ``__main__`` where that was asked for.

        Raises:
            KeyError: There is none.
        """
        if self.assigns and name in self.main:
            del self.main[name]
        else:
            del (self.kept if name in self.kept else self._behind)[name]

    def needs_frames(self, code: CodeType) -> bool:
        """Whether code uses names that ``__main__`` does not have and that are known otherwise."""
        if self._place.is_chosen or self.kept or self._behind or not self.assigns:
            return True
        missing = {n for n in names_in(code) if n not in self.main and not hasattr(builtins, n)}
        return any(self.has(name) for name in missing | (self._last.keys() & set(names_in(code))))

    def own_names(self) -> set[str]:
        """The names of ``__main__`` and of the frames."""
        return {
            *self._last,
            *self.kept,
            *self._behind,
            *self.main,
            *(n for _, values in self._looked() for n in values),
        }

    def hint(self, name: str) -> str:
        """A sentence about a name that stands for nothing."""
        if name in getattr(self._found, "possible", ()):
            return f"probing knows {name} where a training has one; it has seen none here."
        origins = self._origins(self._near(name))
        if name in origins:  # Python says so of one that cannot be deleted, too
            return (
                f"{name} is {origins[name]}; what code has assigned can be deleted, and with"
                " --assign global names of the script."
            )
        return nearest(name, origins)

    def origins(self) -> dict[str, str]:
        """Every name at hand, and where it comes from.

        Those are left out that only a look at every object of the process could find.
        """
        return self._origins(self._at_hand())

    def _near(self, name: str) -> dict[str, str]:
        """The names of recorded calls that are at hand, and those that an unknown one may mean.

        Whether there is anything of the latter is not found out: that takes a look at every object
        of the process, and the training stands still meanwhile.
        """
        from difflib import get_close_matches  # only after a mistake

        at_hand = self._at_hand()
        possible = getattr(self._found, "possible", ())
        close = get_close_matches(name, possible, n=_MOST_CLOSE, cutoff=_CLOSE)
        sought = set(close).difference(getattr(self._found, "at_hand", self._found))
        return at_hand | {n: _SOUGHT for n in close if n in sought}

    def _at_hand(self) -> dict[str, str]:
        """The names of recorded calls that are found at once."""
        at_hand = getattr(self._found, "at_hand", self._found)
        return {n: _KNOWN for n in at_hand if n in self._found}

    def _origins(self, known: dict[str, str]) -> dict[str, str]:
        """The names of the frames and of the script, and some of recorded calls."""
        origins = dict(known)
        for frame, values in reversed(self._looked()):
            origins.update(dict.fromkeys(values, f"a local of {describe_frame(frame)}"))
        for name in self.main:
            if not name.startswith("__"):
                origins.pop(name, None)  # in the order of the script, whoever else has it, too
                origins[name] = _SCRIPT
        return origins

    def _comes_behind(self, name: str, frame: FrameType) -> bool:
        """Whether what probing knows by a name comes before the local of a frame."""
        known = getattr(self._found, "possible", ())
        if self._place.is_chosen or name == "model" or name not in known:
            return False
        return is_installed(frame.f_code.co_filename)

    def _find_known(self, name: str) -> Any:
        """What probing knows by a name; looked for once while the code runs."""
        if self._frames is None:
            return self._found[name]
        if name not in self._known:
            self._known[name] = self._found[name]
        return self._known[name]

    def _looked(self) -> list[tuple[FrameType, dict[str, Any]]]:
        """The frames now, with copies of their locals."""
        known = [self._found.get(name) for name in ("model", "optimizer")]
        return [(frame, locals_of(frame)) for frame in frames_at(self._place, known)]


class _Behind(dict[str, Any]):
    """The builtins, behind all other names.

    In the body of a class Python asks no `__missing__` of the globals: there these stand for both.
    """

    def __init__(self, names: Names) -> None:
        super().__init__(vars(builtins))
        self._names = names

    def __getitem__(self, name: str) -> Any:
        try:
            return self._names.find(name)
        except KeyError:
            return vars(builtins)[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(builtins, name)  # a script's ``__builtins__`` are the module


class LiveGlobals(dict[str, Any]):
    """Globals that read through to ``__main__`` and, behind it, to other names.

    Python asks `__missing__` for every global of a dict subclass that is not in it. Builtins are
    found there as well: who asked for them after that would look through all other names twice.
    """

    def __init__(self, names: Names) -> None:
        self._names, self._behind = names, _Behind(names)
        super().__init__({} if names.assigns else names.covers, __builtins__=self._behind)

    def __missing__(self, name: str) -> Any:
        return self._behind[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The same as by its index, but for builtins, which are no globals."""
        if name not in self:
            return default
        return self[name]

    def __setitem__(self, name: str, value: object) -> None:
        if self._names.assigns:
            self._names.assign(name, value)
        else:
            dict.__setitem__(self, name, value)

    def __delitem__(self, name: str) -> None:
        if dict.__contains__(self, name):
            dict.__delitem__(self, name)
            self._names.covers.pop(name, None)
        else:
            self._names.delete(name)

    def __contains__(self, name: object) -> bool:
        is_own = dict.__contains__(self, name)
        return is_own or (isinstance(name, str) and self._names.has(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> Any:
        """All names at hand, as ``dir()`` lists them."""
        return {**dict.fromkeys(dict.keys(self)), **self._names.origins()}.keys()

    def settle(self) -> None:
        """The code is done: let later code see what it has assigned.

        What goes into the script is here only where a ``global`` statement stored it past
        `__setitem__`. What does not is left here, too, for functions that outlive the code.
        """
        for name, value in list(dict.items(self)):
            if name == "__builtins__":
                continue
            if self._names.assigns:
                self._names.assign(name, value)
                dict.pop(self, name)
            elif self._names.keep(name, value):
                dict.pop(self, name)


def names_in(code: CodeType) -> Iterator[str]:
    """Every name that code, or a function defined in it, looks up by name."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def nearest(name: str, origins: Mapping[str, str]) -> str:
    """A sentence about what an unknown name may have been meant to be."""
    from difflib import get_close_matches  # only after a mistake

    if name.lower() in _USUAL:
        return f"Did you mean {_USUAL[name.lower()]}?"
    known = {**{n: _PYTHON for n in dir(builtins) if not n.startswith("_")}, **origins}
    close = get_close_matches(name, list(known), n=_MOST_CLOSE, cutoff=_CLOSE)
    if close:
        first, *others = (f"{n} ({known[n]})" for n in close)
        also = f" Near it, too: {', '.join(others)}." if others else ""
        return f"Did you mean {first}?{also}"
    by_origin: dict[str, list[str]] = {}
    for it, origin in list(origins.items())[-_MOST_NAMES:]:
        by_origin.setdefault(origin, []).append(it)
    there = "; ".join(f"{', '.join(sorted(n))} ({origin})" for origin, n in by_origin.items())
    return f"There are: {there}." if there else "The script has no names."
