"""The formats of a query's answer: their names, their file suffixes, and which one is meant.

Rules of this file: names only; it imports no library, so that help and completion stay quick.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError

FORMATS = {
    "table": (".txt",),
    "json": (".json",),
    "jsonl": (".jsonl", ".ndjson"),
    "csv": (".csv",),
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "parquet": (".parquet", ".pq"),
    "markdown": (".md", ".markdown"),
}
"""Every format with the suffixes that stand for it."""

BINARY = frozenset({"arrow", "parquet"})


def choose_format(given: str | None, output: str | None, *, is_terminal: bool) -> str:
    """The format to write.

    Args:
        given: What ``--format`` says.
        output: The file that ``-o`` names.
        is_terminal: Whether stdout is a terminal.

    Raises:
        UsageError: The file's suffix says nothing, or a terminal would get binary data.
    """
    if output is not None:
        return given or _format_of(output)
    chosen = given or "table"
    if chosen in BINARY and is_terminal:
        raise UsageError(
            f"{chosen} is binary and would garble the terminal.",
            help=f"Write it to a file with -o FILE{FORMATS[chosen][0]}, or pipe it on.",
        )
    return chosen


def _format_of(output: str) -> str:
    suffix = Path(output).suffix.lower()
    for name, suffixes in FORMATS.items():
        if suffix in suffixes:
            return name
    raise UsageError(
        f"the name {output} does not tell the format.",
        help=f"Add --format {'|'.join(FORMATS)}, or use a suffix such as .csv or .parquet.",
    )
