"""Names of kernels, as short as a table needs them.

Rules of this file: pure functions. The compiler's names of C++ kernels tell all their types twice;
what is left out here stands in `--json` and in python.kernels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..text import cut_middle

ROOM = 90
"""How long a name may be."""
_OPENING, _CLOSING = "<({[", ">)}]"
_PREFIX = re.compile(r"^(?:at::native::|at::|c10::|std::)+")
_NUMBER = re.compile(r"\(.*\)-?\d+|-?\d+[ul]*|true|false")
_PLUMBING = re.compile(
    r"array|tuple|unsigned int|long|int|\w*OffsetCalculator|(Load|Store)With(out)?Cast"
    r"|TensorList\w*"
)
_CALLED = re.compile(r"[\w>]\(")
_LAMBDA = re.compile(r"\{lambda\((.*)\)#\d+\}")
_FUNCTOR = ("operator", "{", "'lambda", "type", "value")
"""How the parts of a name begin that say what is called inside of what the name is about."""
_BARE, _SIGNED, _WHOLE, _NUMBERED = range(4)
"""What tells equal names apart: what a lambda is called with, all arguments, a number."""


class _Name(NamedTuple):
    """A part of a name that stands for itself.

    Attributes:
        takes: What the lambda in it is called with; empty where there is none.
    """

    text: str
    args: tuple[_Name, ...] = ()
    takes: str = ""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Each name as short as tells it from the others."""
    parsed = {name: _parsed(name) for name in sorted(set(names))}
    levels = dict.fromkeys(parsed, _BARE)
    while True:
        shown = {name: _shown(found, levels[name]) for name, found in parsed.items()}
        times = Counter(shown.values())
        twice = [name for name in parsed if times[shown[name]] > 1]
        if not any(levels[name] < _NUMBERED for name in twice):
            break
        for name in twice:
            levels[name] = min(levels[name] + 1, _NUMBERED)
    seen: Counter[str] = Counter()
    for name in twice:
        form = shown[name]
        seen[form] += 1
        shown[name] = f"{form} #{seen[form]}"
    return shown


def _shown(name: _Name, level: int) -> str:
    """A name with as much of what is nested in it as there is room for."""
    forms = [_text(name, depth, level) for depth in range(_depth(name) + 1)]
    fitting = [form for form in forms if len(form) <= ROOM]
    return fitting[-1] if fitting else cut_middle(forms[0], ROOM)


def _depth(name: _Name) -> int:
    return 1 + max(map(_depth, name.args)) if name.args else 0


def _text(name: _Name, depth: int, level: int) -> str:
    takes = f"({name.takes})" if name.takes and level >= _SIGNED else ""
    if not depth:
        return f"{name.text}{takes}"
    kept = [arg for arg in name.args if level >= _WHOLE or not _is_plumbing(arg)]
    args = ", ".join(_text(arg, depth - 1, level) for arg in kept)
    return f"{name.text}{f'<{args}>' if args else ''}{takes}"


def _is_plumbing(arg: _Name) -> bool:
    """Whether an argument says nothing of what is computed."""
    return bool(_NUMBER.fullmatch(arg.text) or _PLUMBING.fullmatch(arg.text))


def _parsed(name: str) -> _Name:
    """A whole name; as it is where it is none of C++."""
    is_cpp = name.startswith("void ") or "::" in name or "<" in name or _CALLED.search(name)
    if not is_cpp or not _is_balanced(name):
        return _Name(name)
    called = _without_parameters(name)
    return _part(_split(called, " ")[-1], is_outermost=True)


def _part(text: str, *, is_outermost: bool = False) -> _Name:
    """One name, without the namespaces that it is in, but for those of the outermost one."""
    scopes = _split(text.strip(), "::")
    takes = ""
    while len(scopes) > 1 and scopes[-1].startswith(_FUNCTOR):
        match = _LAMBDA.fullmatch(scopes.pop())
        if match is not None and not takes:
            takes = _PREFIX.sub("", match[1])
    base, opening, inside = _without_parameters(scopes[-1]).partition("<")
    args = _split(inside.rpartition(">")[0], ",") if opening else []
    if is_outermost:
        around = [one.partition("<")[0] for one in scopes[:-1] if not one.startswith("(")]
        base = _PREFIX.sub("", "::".join([*around, base]))
    return _Name(base.strip(), tuple(_part(arg) for arg in args), takes)


def _without_parameters(text: str) -> str:
    """A function without what it is called with, which stands right behind its name."""
    for place, depth in _places(text):
        is_call = text[place] == "(" and not depth and place and text[place - 1] not in " :"
        if is_call and not text[:place].endswith("operator"):
            return text[:place]
    return text


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that are in no brackets."""
    parts, begin = [], 0
    for place, depth in _places(text):
        if not depth and place >= begin and text.startswith(separator, place):
            parts.append(text[begin:place])
            begin = place + len(separator)
    return [part for part in (*parts, text[begin:]) if part.strip()]


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Each place in a text, and in how many brackets it is."""
    depth = 0
    for place, letter in enumerate(text):
        if letter in _CLOSING:
            depth -= 1
        yield place, depth
        if letter in _OPENING:
            depth += 1


def _is_balanced(text: str) -> bool:
    """Whether all brackets of a text close where they should."""
    open_ones: list[str] = []
    for letter in text:
        if letter in _OPENING:
            open_ones.append(_CLOSING[_OPENING.index(letter)])
        elif letter in _CLOSING and (not open_ones or open_ones.pop() != letter):
            return False
    return not open_ones
