"""Keeps what another engine says off the screen, and from telling its makers that it ran.

Rules of this file: settings are defaults, which whoever has set them otherwise keeps. What is said
while an engine starts is why it does not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

from ...errors import SqlError

_SETTINGS = {
    "DAFT_ANALYTICS_ENABLED": "0",
    "DAFT_PROGRESS_BAR": "0",
    "DAFT_SHOW_QUERY_ID": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_LOGGERS = ("aws_config", "daft_io", "daft_local_execution")
"""What Daft says beside what it raises."""
_LONGEST = 300
_OF_A_REASON = re.compile("exception|error|no such|not found|is not set", re.IGNORECASE)


def set_quiet() -> None:
    """Before Daft or Ray is imported."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextlib.contextmanager
def kept_quiet() -> Iterator[IO[bytes]]:
    """Give what is started meanwhile another standard error, for as long as it lives."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        before = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)


def reason(lines: list[str], error: BaseException) -> str:
    """The line that says why an engine does not start."""
    told = [line.strip() for line in lines if line.strip()] or [type(error).__name__]
    return next(filter(_OF_A_REASON.search, told), told[0]).rstrip(".")


def line_of_engine(error: BaseException) -> str:
    """What an engine raises, in one line."""
    return " ".join(str(error).split())[:_LONGEST].rstrip(".")


def not_taken(engine: str, error: BaseException) -> SqlError:
    """What is told of a statement that an engine refuses."""
    line = line_of_engine(error)
    return SqlError(f"{engine} does not take the statement, said in its SQL: {line}")
