"""The hooks of a program on its models, for ``python.hooks``.

Rules of this file: runs in the agent's thread while others train; calls no hook and holds none.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ...messages.common import LiveRows
from ...tables import HOOKS
from .calls.names.class_names import class_name
from .calls.names.module_names import outermost, walk
from .leaks.hook_counts import function_of, hooks_on, is_ours
from .shared.found import found_roots

if TYPE_CHECKING:
    from ..live.question import LiveQuestion
    from .shared.recording import Recording

Row = tuple[str | int | None, ...]


class _Function(NamedTuple):
    """A function that hangs on a module, whichever closure or bound method of it."""

    name: str
    file: str | None
    lineno: int | None


def rows(question: LiveQuestion) -> LiveRows:
    """The rows of ``python.hooks`` now."""
    recording = question.training.watched()
    return LiveRows.of(HOOKS, () if recording is None else _rows(recording))


def _rows(recording: Recording) -> list[Row]:
    """One row for each function on each module."""
    found: list[Row] = []
    for root in outermost(recording.objects.roots.alive()) or found_roots():
        model = recording.objects.models.name_of(root)
        for path, module in walk(root, "", set()):
            for place, hooks in hooks_on(module):
                of_module = model, path or class_name(module), class_name(module), place
                found += [(*of_module, *row) for row in _of_functions(list(hooks.values()))]
    return found


def _of_functions(hooks: list[Any]) -> list[Row]:
    """The functions among some hooks, how often each hangs there, and as how many objects."""
    those = defaultdict[_Function, list[Any]](list)
    for hook in hooks:
        if not is_ours(hook):
            those[_named(hook)].append(hook)
    return [(*function, len(each), _different(each)) for function, each in those.items()]


def _named(hook: object) -> _Function:
    """Where the function of a hook stands in the source; its class, of another object."""
    function = function_of(hook)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", None) or type(hook).__qualname__
    return _Function(
        str(name), getattr(code, "co_filename", None), getattr(code, "co_firstlineno", None)
    )


def _different(hooks: list[Any]) -> int:
    """How many different objects some hooks are; a method of one object is one, bound anew or not.

    Of what was bound or wrapped, as by functools.partial, the arguments are asked for nothing.
    """
    return len(
        {(id(getattr(hook, "__self__", None)), id(getattr(hook, "__func__", hook)))
         for hook in hooks}
    )  # fmt: skip
