"""The parts of a Markdown page.

Rules of this file: texts in, texts out; nothing of probing is known here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

NOTICE = "<!-- Written by docs/generate.py from the declarations: change those, then run it. -->"


def first_paragraph(cls: type[Any]) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].replace("``", "`").split())


def prose(text: str | None) -> str:
    """A help text as Markdown: paragraphs of one line, blocks marked by click kept as code."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(_paragraph(paragraph) for paragraph in paragraphs)


def _paragraph(text: str) -> str:
    """One paragraph; what click must not wrap is code."""
    if text.startswith("\b"):
        return "```text\n" + inspect.cleandoc(text.removeprefix("\b\n")) + "\n```"
    return " ".join(text.split())


def anchor(heading: str) -> str:
    """The anchor that Markdown renderers give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def grid(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head)]
    lines += [tuple(_cell(text) for text in row) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bullets(rows: Iterable[tuple[str, str]]) -> str:
    """A Markdown list of terms and what they mean."""
    return "\n".join(f"- {term}: {meaning}".replace("``", "`") for term, meaning in rows)


def _cell(text: str) -> str:
    """A text as it may stand in a cell."""
    return text.replace("``", "`").replace("|", "\\|")


def page(parts: Iterable[str]) -> str:
    """Parts with an empty line between them."""
    return "\n\n".join((NOTICE, *filter(None, parts))) + "\n"
