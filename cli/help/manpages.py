"""Writes the manual pages from the help of the commands, so that they cannot say anything else.

    python -m probing.cli.help.manpages ~/.local/share/man

writes man1/probing.1, man1/probing-query.1 and so on below that folder, where `man` looks for them.
Rules of this file: a page is a pure function of a command; words stand where the command is
declared, never here.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ..._version import VERSION
from ..command import examples_of, usage_path
from ..group import probing as cli
from ..tasks import TASKS
from .contract import EXIT_CODES, OWN_CODES
from .examples import ANSWERS

_SECTION = "1"
_VERBATIM = "\b"
"""What click's help begins a paragraph with whose lines stay as they are."""


def pages() -> Iterator[tuple[str, str]]:
    """The name of every page, and its text."""
    for context in contexts():
        yield f"{_title(context)}.{_SECTION}", page(context)


def contexts(parent: click.Context | None = None) -> Iterator[click.Context]:
    """That of `probing`, then those of every command and of the commands in it."""
    context = parent or click.Context(
        cli, info_name="probing", resilient_parsing=True, **cli.context_settings
    )
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from contexts(
                click.Context(command, info_name=name, parent=context, resilient_parsing=True)
            )


def page(context: click.Context) -> str:
    """The page of one command."""
    name, command = _title(context), context.command
    short = command.get_short_help_str(limit=1000).rstrip(".")
    pieces = command.collect_usage_pieces(context)
    lines = [
        f'.TH "{name.upper()}" "{_SECTION}" "" "probing {VERSION}" "probing"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(short)}",
        ".SH SYNOPSIS",
        f".B {roff(usage_path(context) if context.parent else 'probing')}",
        roff(" ".join(pieces)),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
    ]
    if context.parent is None:
        lines += _first_page()
    lines += [".SH OPTIONS", *_options(context)]
    examples = examples_of(context)
    if examples:
        lines += [".SH EXAMPLES", ".nf", *(roff(line) for line in examples), ".fi"]
    own = OWN_CODES.get(context.info_name or "")
    lines += [".SH EXIT STATUS", *_terms((str(n), text) for n, text in EXIT_CODES.items())]
    lines += [".PP", roff(own)] if own else []
    lines += [".SH SEE ALSO", roff("probing(1)" if context.parent else "probing-query(1)")]
    return "\n".join(lines) + "\n"


def roff(text: str) -> str:
    """A text as the language of manual pages has it: nothing in it is a command."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    text = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _title(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _first_page() -> Iterator[str]:
    """What is asked most, and the commands by what they are for."""
    yield ".SH WHAT IS ASKED MOST"
    yield from _terms(ANSWERS)
    yield ".SH COMMANDS"
    group = click.Context(cli)
    for task, names in TASKS.items():
        yield f".SS {roff(task)}"
        found = ((name, cli.get_command(group, name)) for name in names)
        yield from _terms(
            (f"probing-{name}(1)", command.get_short_help_str(limit=1000))
            for name, command in found
            if command is not None
        )


def _options(context: click.Context) -> Iterator[str]:
    records = (
        parameter.get_help_record(context)
        for parameter in context.command.get_params(context)
        if isinstance(parameter, click.Option)
    )
    return _terms(record for record in records if record is not None)


def _terms(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Terms, and what each means below it."""
    for term, meaning in rows:
        yield from (".TP", f".B {roff(term)}", roff(meaning))


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help; those whose lines stay as they are, do."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        is_verbatim = paragraph.startswith(_VERBATIM)
        yield ".PP"
        if is_verbatim:
            yield ".nf"
        lines = paragraph.removeprefix(_VERBATIM).strip("\n").splitlines()
        yield from (roff(line if is_verbatim else line.strip()) for line in lines)
        if is_verbatim:
            yield ".fi"


def main(words: list[str]) -> None:
    """Write all pages into a folder."""
    parser = argparse.ArgumentParser(description="Writes the manual pages of probing.")
    parser.add_argument("folder", type=Path, help="where man1/ is made")
    folder = parser.parse_args(words).folder / f"man{_SECTION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
