"""SQL or code from where the user put it: the argument, a file, standard input."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from ...errors import UsageError
from ..command import AskCommand

_DASH_TEXT = re.compile(r"--?\s")


class TextCommand(AskCommand):
    """A command whose argument is a text that may itself begin with dashes: ``-- a comment``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options, with such a text kept out of their way."""
        texts = [arg for arg in args if _DASH_TEXT.match(arg)]
        if texts and "--" not in args:
            args = [*(arg for arg in args if arg not in texts), "--", *texts]
        return super().parse_args(ctx, args)


def read_text(what: str, argument: str | None, path: str | None) -> str:
    """The text of the argument, of the file, or of standard input for ``-``.

    Args:
        what: What the text is, for the sentence that asks for it.

    Raises:
        UsageError: There is none, or it cannot be read.
    """
    if argument is not None and path is not None:
        raise UsageError(f"give {what} either as an argument or with -f FILE, not both.")
    if argument is None and path is None:
        raise UsageError(
            f"give {what} as an argument, with -f FILE, or as - to read it from stdin."
        )
    if argument is not None and argument != "-":
        return argument
    source = path if path is not None and path != "-" else None
    try:
        data = sys.stdin.buffer.read() if source is None else Path(source).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {source or 'stdin'}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {source or 'stdin'}: it is not UTF-8 text.") from None
