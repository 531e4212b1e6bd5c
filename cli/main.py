"""The command ``probing``: from an argument list to an exit code.

Rules of this file: the one place where errors become a sentence on stderr and an exit code;
no traceback gets past it. Exit codes: those of `probing.errors`; 130 after Ctrl-C; 141 when the
reader of the output went away (``| head``), as tools have that die of SIGPIPE.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from ..errors import ProbingError, UsageError
from . import time_limit
from .group import COMPLETE_VARIABLE, probing
from .output import terminal
from .output.any_text import accept_any_text

INTERRUPTED = 130
READER_GONE = 141
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)
_NO_COMMAND = "Missing command."
_TYPES = {
    "is not a valid float range": "is not a number",
    "is not a valid integer range": "is not a whole number",
    "is not a valid float": "is not a number",
    "is not a valid integer": "is not a whole number",
}
"""What click calls its types, and what people do."""
_TEXTS = frozenset({"sql", "code"})
"""The arguments that are text with spaces in it."""


def main() -> NoReturn:
    """Run the command line of this process and leave with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see `probing.__main__`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:])
    if threading.active_count() == 1 and not time_limit.is_over():
        # Otherwise a statement that cannot be interrupted still holds its thread, or an alarm came
        # in the middle of an import: nothing of that can be waited for.
        atexit._run_exitfuncs()  # noqa: SLF001  what Python itself calls as it ends
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or nobody reads
            stream.flush()
    os._exit(code)  # taking the libraries down one by one would cost a third of a short command


def run(argv: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code.
    """
    accept_any_text()
    terminal.begin()
    try:
        code = _dispatch([_as_typed(word) for word in argv])
        terminal.finish()
    except ProbingError as error:
        terminal.complain(error)
        return error.exit_code
    except click.ClickException as error:
        terminal.complain(UsageError(_sentence(error), help=_how_to_use(error)))
        return UsageError.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        terminal.discard_output()
        return READER_GONE
    except Exception as error:  # noqa: BLE001  the rim: a fault of ours is one sentence, too
        told = _told(error)
        terminal.complain(told)
        return told.exit_code
    return code


def _told(error: Exception) -> ProbingError:
    """What is told of an exception that nobody expected."""
    import traceback

    from ..errors.querying import told_of

    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return told_of(error, where=where)


def _as_typed(word: str) -> str:
    """A word of the command line; as UTF-8 where the locale has no letters for what is in it."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return os.fsencode(word).decode("utf-8", "surrogateescape")
    return word


def _dispatch(argv: list[str]) -> int:
    """Hand the arguments to click; its own `main` would print and exit in its own way."""
    if COMPLETE_VARIABLE in os.environ:
        from . import bash_completion  # noqa: F401 - which takes the place of click's

        probing.main(argv, prog_name="probing", complete_var=COMPLETE_VARIABLE)
    try:
        with probing.make_context("probing", argv) as context:
            probing.invoke(context)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    return 0


def _sentence(error: click.ClickException) -> str:
    """What click has to say, as one sentence."""
    if isinstance(error, click.UsageError) and (words := _too_many(error) or _too_few(error)):
        return words
    text = error.format_message().strip()
    for internal, plain in _TYPES.items():
        text = text.replace(internal, plain)
    return text if text.endswith((".", "!", "?", ")")) else f"{text}."


def _too_many(error: click.UsageError) -> str | None:
    """The sentence on arguments that a command does not take; mostly quotes were left out."""
    found = _EXTRA.fullmatch(error.format_message())
    if found is None or error.ctx is None:
        return None
    name, words = error.ctx.info_name, found[1]
    takes_text = any(
        isinstance(parameter, click.Argument) and parameter.name in _TEXTS
        for parameter in error.ctx.command.params
    )
    if takes_text:
        return (
            f"{name} takes its text as one argument, and {words!r} is left over:"
            f' put all of it in quotes, `probing ENDPOINT {name} "..."`.'
        )
    return f"{name} takes no further argument, but {words!r} was given."


def _too_few(error: click.UsageError) -> str | None:
    """The sentence on a group of commands of which none was named."""
    context = error.ctx
    if context is None or not isinstance(context.command, click.Group):
        return None
    if error.format_message() != _NO_COMMAND:
        return None
    names = context.command.list_commands(context)
    return f"{context.info_name} needs one of {', '.join(names[:-1])} or {names[-1]}."


def _how_to_use(error: click.ClickException) -> str:
    """Where the usage of the command in question is described."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "probing"
    return f"`{path} --help` shows how it is used."
