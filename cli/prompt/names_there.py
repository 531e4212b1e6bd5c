"""`%who`: the names that a line of the prompt can use, and what each of them is.

Rules of this file: one statement is run in the process, as a line of the prompt, which may have
names of its own; it prints what it finds: nothing is assigned there, and `_` stays.
"""

from __future__ import annotations

import builtins
import json
import keyword
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UsageError
from ..render.table import columns, render_table
from ..render.text import escape_controls

if TYPE_CHECKING:
    from ...client.base import Process

_LOOK = """
import json, types
OTHER = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
PLAIN = (int, float, bool, complex, type(None))
HOLDERS = (list, tuple, dict, set, frozenset, str, bytes)
def size(value):
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{getattr(value, 'dtype', '')} {list(shape)}".strip()
    return f"{len(value):,} items" if type(value) in HOLDERS else ""
def fact(name, get):
    try:
        value = get()
    except NameError:
        return None
    if not is_wanted and isinstance(value, OTHER):
        return None
    try:
        what = repr(value) if type(value) in PLAIN else size(value)
    except Exception as error:
        what = f"cannot be looked at: {type(error).__name__}"
    return [name, type(value).__name__, what[:200]]
facts = json.dumps([found for name, get in gets.items() if (found := fact(name, get))])
"""


class Name(NamedTuple):
    """A name, the class of what it stands for, and its value or size in words."""

    name: str
    kind: str
    what: str


def ask_for_names(process: Process, wanted: Sequence[str], session: str) -> list[Name]:
    """What the names stand for; without any, all but modules, functions and classes.

    Args:
        session: Of the prompt, whose lines may have assigned names that the script has, too.

    Raises:
        UsageError: One of the words is no name.
        ProbingError: There is no answer.
    """
    for word in wanted:
        if not word.isidentifier() or keyword.iskeyword(word):
            raise UsageError(f"{word!r} is no name.", help="%who NAME says what one name is.")
    names = list(wanted)
    if not names:
        skipped = {*dir(builtins), *keyword.kwlist}
        names = [
            name for name in process.complete("", session=session).words if name not in skipped
        ]
    gets = ", ".join(f"{name!r}: lambda: {name}" for name in names)
    space = f"{{'is_wanted': {bool(wanted)}, 'gets': {{{gets}}}}}"
    code = f"print((lambda space: (exec({_LOOK!r}, space), space['facts'])[1])({space}))"
    result = process.eval(code, session=session)
    if result.error or result.omitted_bytes or not result.output.strip():
        raise UsageError("the names could not be looked at.", help="%who NAME says what one is.")
    return [Name(*found) for found in json.loads(result.output)]


def render_names(names: Sequence[Name], *, width: int | None) -> str:
    """A line for each."""
    headings = columns("name", "class", "value or size")
    rows: list[list[str | None]] = [[escape_controls(part) for part in name] for name in names]
    return render_table(headings, rows, width=width, color=False)
