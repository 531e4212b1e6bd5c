"""Small texts that several renderers share: safe text, ages, counts."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_COLOR = re.compile("(\x1b\\[[0-9;]*m)")
_INDENT = "    "
_LABEL = re.compile(r" *[\w:.]+ {2,}(?=\S)")
"""A word that stands before a wider gap: the name of what comes behind it."""
_QUOTED, _GLUE = re.compile("`[^`\n]+`"), "\ue000"
_WIDEST_DOC = 96
_LEAST_CUT = 8
"""A text in fewer columns than this loses its end, and not its middle."""


def escape_controls(text: str) -> str:
    r"""The text on one line, control characters written out (`\n`, `\x1b`).

    What another process says must not be able to steer this terminal.
    """
    return CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def escape_lines(text: str) -> str:
    """As `escape_controls`, but line breaks and tabs stay."""
    return _BREAKING.sub(lambda match: ascii(match[0])[1:-1], text)


def harmless(text: str) -> str:
    r"""The text for a terminal that others' words must not steer: `\u009b`; colours stay.

    As JSON escapes it, since it may be JSON.
    """
    parts = _COLOR.split(text)
    parts[::2] = [_BREAKING.sub(as_json, part) for part in parts[::2]]
    return "".join(parts)


def visible_width(text: str) -> int:
    """How many columns of a terminal a text takes, its colours aside."""
    return cell_len(_COLOR.sub("", text))


def cell_len(text: str) -> int:
    """How many columns of a terminal a text without colours takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len as measured

    return measured(text)


def set_cell_size(text: str, columns: int) -> str:
    """A text without colours in exactly so many columns: cut, or filled up."""
    if text.isascii() and text.isprintable():
        return text[: max(columns, 0)].ljust(columns)
    from rich.cells import set_cell_size as resized

    return resized(text, columns)


def fit_line(text: str, columns: int) -> str:
    """A line with its colours in so many columns; what does not fit is cut off its end."""
    parts = _COLOR.split(text)
    left = columns
    for index in range(0, len(parts), 2):
        width = visible_width(parts[index])
        if width > left:
            parts[index] = set_cell_size(parts[index], left)
            width = left
        left -= width
    return "".join(parts)


def as_json(match: re.Match[str]) -> str:
    r"""A character as JSON writes it: `\u009b`."""
    return f"\\u{ord(match[0]):04x}"


def render_count(number: int | None) -> str:
    """A count with its thousands set apart; nothing where it is not known."""
    return "" if number is None else f"{number:,}"


def render_number(value: float) -> str:
    """A floating-point number short enough to read: six significant digits."""
    return f"{value:.6g}"


def json_number(value: float) -> float | str:
    """A number as JSON can hold it: what JSON has no word for by the name that parsers know."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def json_value(value: Any) -> Any:
    """A value of plain parts with every number in it as JSON can hold it."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, dict):
        return {name: json_value(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(part) for part in value]
    return value


def module_name(row: Mapping[str, Any]) -> str:
    """A module by its name, and by its model where several have one of that name."""
    name = row["module"] or ""
    return f"{name} of {row['model']}" if row["models"] > 1 and row["model"] else name


def plural(number: int, noun: str) -> str:
    """A count and its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def wrap_doc(doc: str, width: int | None) -> list[str]:
    """A sentence or two, indented below what they explain."""
    room = _WIDEST_DOC if width is None else min(width, _WIDEST_DOC)
    return textwrap.wrap(
        escape_controls(doc),
        max(room, 30),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )


def wrap_text(text: str, width: int | None) -> list[str]:
    """Text in lines that end between two words; one line where the width is not limited."""
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 30), break_on_hyphens=False, subsequent_indent=_INDENT)


def wrap_sentence(
    text: str, room: int, first: str, later: str | None = None, *, least: int = 30
) -> list[str]:
    """Text in lines of whole words.

    Args:
        first: What stands before the first line, and before the others without `later`.
        least: How much room is taken at the least.
    """
    return textwrap.wrap(
        escape_controls(text),
        max(room, least),
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_on_hyphens=False,
        break_long_words=False,
    )


def wrap_lines(text: str, width: int | None) -> str:
    """The text with no line wider than so many columns, as far as it can be broken between words.

    What goes on stands below the words that begin its line, or below what stands behind a label.
    """
    if width is None or all(len(line) <= width for line in text.split("\n")):
        return text
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    """One line; coloured ones, which are as wide as they look, stay."""
    if len(line) <= width or _COLOR.search(line):
        return line
    label = _LABEL.match(line)
    indent = len(label[0]) if label else len(line) - len(line.lstrip()) + 2
    wrapped = textwrap.wrap(
        _QUOTED.sub(_joined, line),
        width,
        subsequent_indent=" " * min(indent, width // 2),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(wrapped).replace(_GLUE, " ")


def _joined(quoted: re.Match[str]) -> str:
    """A command in quotes as one word, so that it can be copied whole."""
    return quoted[0].replace(" ", _GLUE)


def cut_middle(text: str, room: int) -> str:
    """The text in so many columns; what does not fit is left out of its middle: `blocks…attn.qkv`.

    Dotted names and paths differ at their ends.
    """
    if len(text) <= room:
        return text
    if room < _LEAST_CUT:
        return text[: max(0, room - 1)] + "…"[:room]
    tail = (room - 1) * 2 // 3
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def cut_words(text: str, room: int) -> str:
    """The text in so many columns, cut between two words."""
    if len(text) <= room:
        return text
    kept = text[: max(1, room - 1)]
    whole = kept.rpartition(" ")[0].rstrip(" ,:;(")
    return f"{whole if len(whole) > len(kept) // 2 else kept}…"


def wrap_words(words: Iterable[str], room: int, *, between: str = ", ") -> list[str]:
    """Words in lines of so many columns; none is broken."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(between) + len(word) <= room:
            lines[-1] += between + word
        else:
            if lines:
                lines[-1] += between.rstrip()
            lines.append(word)
    return lines


def first_sentence(text: str) -> str:
    """A text up to its first full stop that ends a sentence."""
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
