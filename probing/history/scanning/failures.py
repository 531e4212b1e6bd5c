"""What DuckDB says of a file that it cannot read.

Rules of this file: words only.
"""

from __future__ import annotations

import contextlib
import json


def message_of(error: BaseException) -> str:
    """What DuckDB says."""
    text = str(error)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text[text.index("{") :])["exception_message"])
    return text


def reason_of(error: BaseException, path: str) -> str:
    """What DuckDB says of a file, without its name."""
    text = message_of(error)
    for name in (f"file '{path}'", f'file "{path}"', f"'{path}'", f'"{path}"', path):
        text = text.replace(name, "it")
    return " ".join(text.split()).rstrip(".")
