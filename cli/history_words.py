"""What the commands of a history are given: its place, runs of it, and what of it is to stay.

Rules of this file: declared once, for all commands that ask a history or may remove something.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import NoHistory, UsageError
from ..history.stores.address import is_url
from .options import together

if TYPE_CHECKING:
    from ..history.compaction.keep import Keep

keep_options = together(
    click.option(
        "--keep-days", type=click.IntRange(min=1), metavar="N",
        help="Remove rows of days more than N days ago, and runs that have ended by then.",
    ),
    click.option(
        "--keep-bytes", metavar="SIZE",
        help="Remove the rows of the oldest days until all files take no more, as 200GiB.",
    ),
)  # fmt: skip


def keep_of(days: int | None, size: str | None) -> Keep:
    """What the two options say.

    Raises:
        UsageError: One of them says nothing that is possible.
    """
    from ..history.compaction.keep import Keep
    from .commands.fit import parse_size

    return Keep(days=days, bytes=None if size is None else parse_size(size))


def given_words(words: tuple[str, ...]) -> str:
    """How many words were given, where these are too few or too many."""
    return "1 was given" if len(words) == 1 else f"{len(words)} words were given"


def folder_before(words: tuple[str, ...], runs: int) -> str | None:
    """The folder before so many runs; None where it was left out.

    Raises:
        NoHistory: It stands behind them.
    """
    first, others = words[0], words[1:]
    if len(words) == runs:
        return None
    if not is_url(first) and not Path(first).is_dir() and any(map(_is_place, others)):
        raise NoHistory(first, "there is no such folder, and the folder comes first")
    return first


def _is_place(word: str) -> bool:
    return "://" in word or Path(word).is_dir()


def folder_and_sql(words: tuple[str, ...], path: str | None) -> tuple[str | None, str | None]:
    """The folder and the statement among the arguments.

    Raises:
        UsageError: There are too many.
    """
    most = 1 if path is not None else 2
    if len(words) > most:
        raise UsageError(
            f"history query takes a folder and one statement, and {words[most]!r} is left over.",
            help='Put the statement in quotes: `probing history query FOLDER "SELECT ..."`.',
        )
    if path is not None:
        return (words[0] if words else None), None
    if len(words) == 2:
        return words[0], words[1]
    return None, words[0] if words else None


def place_named(folder: str | None) -> str:
    """The folder of the history.

    Raises:
        UsageError: None was named.
    """
    from ..settings import Settings

    place = folder or Settings.from_env(os.environ).history
    if not place:
        raise UsageError(
            "say which history to ask.",
            help="Name its folder, or set PROBING_HISTORY; `probing ENDPOINT export FOLDER` begins"
            " one.",
        )
    return place
