"""The manual pages: one for each command, with all of its options, and in the language of man."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from probing.cli.help.manpages import contexts, main, page, roff

pytestmark = pytest.mark.anypython

MACROS = (".TH", ".SH", ".SS", ".B ", ".PP", ".TP", ".nf", ".fi")
ALL = tuple(contexts())


@pytest.mark.parametrize("context", ALL, ids=lambda context: context.command_path)
def test_a_page_has_every_option(context: click.Context) -> None:
    """Under its name, with its sentence; no other line is taken for a command of the formatter."""
    text = page(context)
    for option in context.command.params:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            assert f".B {roff(record[0])}\n{roff(record[1])}\n" in text
    lines = text.splitlines()
    assert all(line.startswith(MACROS) for line in lines if line.startswith((".", "'")))
    assert {".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXIT STATUS"} <= set(lines)


@pytest.mark.slow
def test_pages_are_written_where_man_looks(tmp_path: Path) -> None:
    """A file for each command; the formatter, where there is one, has nothing to say of any."""
    main([str(tmp_path)])
    written = sorted(path.name for path in (tmp_path / "man1").iterdir())
    assert written == sorted(f"{c.command_path.replace(' ', '-')}.1" for c in ALL)
    groff = shutil.which("groff")
    for path in (tmp_path / "man1").iterdir() if groff else ():
        done = subprocess.run(
            [str(groff), "-man", "-Tutf8", "-ww", str(path)], capture_output=True, check=True
        )
        assert done.stderr == b"", (path.name, done.stderr)
        assert len(done.stdout.splitlines()) > len(MACROS), path.name


def test_words_are_not_taken_for_commands() -> None:
    """A leading dot or quote, a backslash, and a hyphen stay what they are."""
    assert roff(".sql file") == "\\&.sql file"
    assert roff("'x'") == "\\&'x'"
    assert roff("a-b\\n") == "a\\-b\\en"
