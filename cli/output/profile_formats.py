"""The formats of a profile: their names, and which one a file's suffix means.

Rules of this file: names only; it imports no library, so that help and completion stay quick.
"""

from __future__ import annotations

from ...errors import UsageError

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
"""Every format with the suffixes that stand for it; of two that fit, the longer one counts."""


def choose_profile_format(given: str | None, output: str | None) -> str:
    """The format to write.

    Args:
        given: What ``--format`` says.
        output: The file that ``-o`` names.

    Raises:
        UsageError: The file's suffix says nothing.
    """
    if given is not None or output is None:
        return given or "table"
    name = output.lower()
    fitting = [
        (len(suffix), form)
        for form, suffixes in PROFILE_FORMATS.items()
        for suffix in suffixes
        if name.endswith(suffix)
    ]
    if not fitting:
        raise UsageError(
            f"the name {output} does not tell the format.",
            help=f"Add --format {'|'.join(PROFILE_FORMATS)}, or use a suffix such as .html.",
        )
    return max(fitting)[1]
