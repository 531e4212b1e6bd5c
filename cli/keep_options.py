"""The options that say what of a history is to stay.

Rules of this file: declared once, for the commands that may remove something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..history.compaction.keep import Keep

F = TypeVar("F", bound=Callable[..., Any])


def keep_options(function: F) -> F:
    """`--keep-days` and `--keep-bytes`."""
    function = click.option(
        "--keep-bytes", metavar="SIZE",
        help="Remove the rows of the oldest days until all files take no more, as 200GiB.",
    )(function)  # fmt: skip
    return click.option(
        "--keep-days", type=click.IntRange(min=1), metavar="N",
        help="Remove rows of days more than N days ago, and runs that have ended by then.",
    )(function)  # fmt: skip


def keep_of(days: int | None, size: str | None) -> Keep:
    """What the two options say.

    Raises:
        UsageError: One of them says nothing that is possible.
    """
    from ..history.compaction.keep import Keep
    from .commands.fit import parse_size

    return Keep(days=days, bytes=None if size is None else parse_size(size))
