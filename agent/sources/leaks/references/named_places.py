"""What a reference from one object to another is called, and where the names of the job are.

Rules of this file: runs in the training thread; runs no code of any object: reads dictionaries,
collections and what Python itself says of functions and frames. Leaves nothing behind in the frames
it reads.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable
from itertools import compress, repeat
from operator import is_
from types import (
    AsyncGeneratorType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, NamedTuple

from ..... import own_files
from .....safety.other_stacks import current_stacks, locals_of
from .....safety.this_thread import thread_name
from ....recording.safe_points import AGENT_THREAD_PREFIX
from ...calls.names.class_names import class_name
from ...calls.names.module_names import outermost, walk
from ...shared.recording import Recording
from ...storage.living import MRO

_ONLY_THE_FRAMES = 3
_LONGEST_KEY = 40
_COLLECTIONS: tuple[type, ...] = (list, tuple, set, frozenset, deque, dict)
MODULE_OF: Callable[[type], Any] = type.__dict__["__module__"].__get__
NAME_OF: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_GENERATORS = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}


class Link(NamedTuple):
    """A reference.

    Attributes:
        text: How it is written behind what refers, such as `.losses` or `[...]`.
        kind: One of `HOLDERS` where the way ends here; None where it goes on.
        place: Whose name the text is.
        container: The collection that refers, and its length.
        file: The source file of the holder.
        line_of: The line where it begins; None for a whole file.
        variable: The name itself.
        is_traceback: Whether it is from the frame of an exception that is kept.
        names_next: Whether its text stands for that of the next reference inwards, too.
        cell: Which of a function's closed over variables it is.
    """

    text: str = ""
    kind: str | None = None
    place: str | None = None
    container: str | None = None
    file: str | None = None
    line_of: int | None = None
    variable: str | None = None
    is_traceback: bool = False
    names_next: bool = False
    cell: int | None = None


class Places:
    """The names of the job at this moment: variables of modules and functions, torch modules."""

    def __init__(self, recording: Recording) -> None:
        self._modules = {
            id(module.__dict__): module
            for module in list(sys.modules.values())
            if type(module) is ModuleType
        }
        self._torch_modules: dict[int, str] = {}
        for root in outermost(recording.objects.roots.alive()):
            name = class_name(root)
            for path, module in walk(root, "", set()):
                self._torch_modules[id(module)] = f"{path} ({name})" if path else name
        self._running: set[int] = set()
        self._locals: dict[int, Link] = {}
        for frame in _running_frames():
            self._running.add(id(frame))
            self._learn(frame)

    def local(self, thing: object) -> Link | None:
        """The local variable of a function under way that holds an object."""
        return self._locals.get(id(thing))

    def link(self, outer: Any, inner: Any, before: Link) -> Link | None:
        """What the reference from one object to another is called; None for one to pass over.

        Args:
            before: What the reference from the inner object onwards is called.
        """
        kind = type(outer)
        if kind in _COLLECTIONS:
            return self._from_collection(outer, inner)
        if kind is FrameType:
            return None if id(outer) in self._running else _from_frame(outer, inner)
        if kind in _GENERATORS:
            frame = getattr(outer, _GENERATORS[kind])
            return None if frame is None else _from_frame(frame, inner, is_under_way=True)
        if kind is FunctionType:
            return _from_function(outer, inner, before)
        if kind in {CellType, MethodType, TracebackType}:
            return Link(is_traceback=kind is TracebackType)
        if type in MRO(kind):
            module = MODULE_OF(outer)
            return Link(
                kind="class", text=f"{NAME_OF(outer)}{_attribute(before)}", place=str(module),
                file=_file_of(module), names_next=True,
            )  # fmt: skip
        if kind is ModuleType:
            return None  # its dictionary has said more
        return self._from_object(outer, inner, before)

    def _from_collection(self, outer: Any, inner: object) -> Link | None:
        """From a list, a dictionary and the like."""
        if type(outer) is dict:
            key = _key_of(outer, inner)
            module = self._modules.get(id(outer))
            if module is not None:
                name = module.__name__
                if not isinstance(key, str) or name.startswith(("probing.", "torch.")):
                    return None
                return Link(kind="global", text=key, place=name, variable=key, file=_file_of(name))
            text = key if type(key) is str else repr(key) if type(key) in (int, bool) else None
            shown = repr(text) if type(key) is str else text or "..."
            return Link(
                text=f"[{shown[:_LONGEST_KEY]}]",
                variable=text if type(key) is str else None,
                container=f"dict of {len(outer):,}",
            )
        if type(outer) is tuple and type(inner) is CellType:
            return Link(cell=next(i for i, cell in enumerate(outer) if cell is inner))
        return Link(text="[...]", container=f"{type(outer).__name__} of {len(outer):,}")

    def _from_object(self, outer: object, inner: object, before: Link) -> Link:
        """From the attribute of an object of any class."""
        cls = type(outer)
        own = dictionary_of(outer)
        if own is inner:  # the way came through the dictionary, which names the attribute
            text, variable = _attribute(before), before.variable
            is_named = True
        else:
            is_named = False
            variable = _key_of(own or {}, inner)
            text = f".{variable}" if variable else ""
        about = self._torch_modules.get(id(outer))
        if about is not None:
            return Link(
                kind="attribute", text=text.lstrip("."), place=about, variable=variable,
                file=_file_of(MODULE_OF(cls)), names_next=is_named,
            )  # fmt: skip
        file = _file_of(MODULE_OF(cls)) if variable else None
        return Link(text=text, variable=variable, file=file, names_next=is_named)

    def _learn(self, frame: FrameType) -> None:
        """Remember which objects the variables of a function under way hold; the caller's count."""
        code = frame.f_code
        if not code.co_flags & inspect.CO_OPTIMIZED:
            return
        for name, value in _variables(frame):
            self._locals[id(value)] = _local(name, frame)


def is_ours(thing: Any) -> bool:
    """Whether an object belongs to the agent: one of its frames, functions or objects."""
    kind = type(thing)
    if kind is FrameType:
        return own_files.is_ours(thing.f_code.co_filename)
    name = thing.__module__ if kind is FunctionType else MODULE_OF(kind)
    return isinstance(name, str) and name.startswith("probing.")


def _running_frames() -> list[FrameType]:
    """The frames of all threads but the agent's, without those of ours."""
    import threading

    own = {t.ident for t in threading.enumerate() if thread_name(t).startswith(AGENT_THREAD_PREFIX)}
    found: list[FrameType] = []
    stacks = current_stacks()
    for ident, stack in stacks.items():
        found += [frame for frame in stack if ident not in own and not is_ours(frame)]
        stack.clear()  # this very frame may be in it, and would hold itself and all that called it
    return found


def _from_frame(frame: FrameType, inner: object, *, is_under_way: bool = False) -> Link | None:
    """From a variable of a function that has ended by an exception, or of a generator."""
    for name, value in _variables(frame):
        if value is inner:
            link = _local(name, frame)
            if is_under_way:
                return link
            return Link(place=link.place, is_traceback=True)
    return None


def _local(name: str, frame: FrameType) -> Link:
    """A local variable, or one of a function around it."""
    code = frame.f_code
    return Link(
        kind="closure" if name in code.co_freevars else "local",
        text=name,
        place=getattr(code, "co_qualname", code.co_name),
        variable=name,
        file=code.co_filename,
        line_of=code.co_firstlineno,
    )


def _variables(frame: FrameType) -> list[tuple[str, Any]]:
    """The variables of a frame, which does not keep a copy of them."""
    names = locals_of(frame)
    found = list(names.items())
    if type(names) is dict and sys.getrefcount(names) <= _ONLY_THE_FRAMES:
        names.clear()
    return found


def _from_function(function: Callable[..., object], inner: object, before: Link) -> Link:
    """From what a function has closed over, or has as a default."""
    code = function.__code__
    is_closure = inner is function.__closure__ and before.cell is not None
    name = code.co_freevars[before.cell or 0] if is_closure else before.variable
    return Link(
        kind="closure", text=name or "", place=function.__qualname__, variable=name,
        file=code.co_filename, line_of=code.co_firstlineno,
    )  # fmt: skip


def _attribute(before: Link) -> str:
    """The dictionary's key as an attribute."""
    return f".{before.variable}" if before.variable else ""


def _key_of(names: dict[Any, Any], thing: object) -> Any:
    """The first key of an object; a copy of a large dictionary would double what it takes."""
    try:
        return next(compress(names, map(is_, names.values(), repeat(thing))), None)
    except RuntimeError:  # another thread has changed it
        return next((key for key, value in names.copy().items() if value is thing), None)


def dictionary_of(thing: object) -> dict[str, Any] | None:
    """The attributes of an object, without its code; None of what has no such dictionary."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return None
    return own if type(own) is dict else None


def _file_of(module: str | None) -> str | None:
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return file if isinstance(file, str) else None
