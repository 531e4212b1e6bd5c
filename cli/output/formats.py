"""The formats of rows and of profiles: their names, their file suffixes, and which one is meant.

Rules of this file: names only; it imports no library, so that help and completion stay quick.
"""

from __future__ import annotations

from collections.abc import Mapping

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
"""Every format of rows with the suffixes that stand for it."""

PROFILE_FORMATS = {
    "table": (".txt",),
    "markdown": (".md", ".markdown"),
    "json": (".json",),
    "chrome": (".trace.json", "trace.json", ".chrome.json"),
    "speedscope": (".speedscope.json", ".speedscope"),
    "pprof": (".pb.gz", ".pprof"),
    "flamegraph.html": (".html", ".htm"),
    "svg": (".svg",),
}
"""The same of profiles."""

BINARY = frozenset({"arrow", "parquet"})


def choose_format(given: str | None, output: str | None, *, is_terminal: bool) -> str:
    """The format of rows to write.

    Args:
        given: What ``--format`` says.
        output: The file that ``-o`` names.
        is_terminal: Whether stdout is a terminal.

    Raises:
        UsageError: The file's suffix says nothing, or a terminal would get binary data.
    """
    if output is not None:
        return given or _format_of(output, FORMATS, ".csv or .parquet")
    chosen = given or "table"
    if chosen in BINARY and is_terminal:
        raise UsageError(
            f"{chosen} is binary and would garble the terminal.",
            help=f"Write it to a file with -o FILE{FORMATS[chosen][0]}, or pipe it on.",
        )
    return chosen


def choose_profile_format(given: str | None, output: str | None) -> str:
    """The format of a profile to write; the arguments as of `choose_format`.

    Raises:
        UsageError: The file's suffix says nothing.
    """
    if given is not None or output is None:
        return given or "table"
    return _format_of(output, PROFILE_FORMATS, ".html")


def _format_of(output: str, formats: Mapping[str, tuple[str, ...]], example: str) -> str:
    """The format that a file's suffix stands for; of two that fit, the longer one counts."""
    name = output.lower()
    fitting = [
        (len(suffix), form)
        for form, suffixes in formats.items()
        for suffix in suffixes
        if name.endswith(suffix)
    ]
    if not fitting:
        raise UsageError(
            f"the name {output} does not tell the format.",
            help=f"Add --format {'|'.join(formats)}, or use a suffix such as {example}.",
        )
    return max(fitting)[1]
