"""Which files are ours: frames of them say nothing about the job.

Rules of this file: nothing but paths, found once. `probing/agent` and `probing/cli` may be links
of a checkout, and a file may be named by either way.
"""

from __future__ import annotations

import os

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
"""The folder of the package, as it is imported from."""

OURS = tuple(
    dict.fromkeys(
        os.path.join(path, "")
        for name in ("", "agent", "cli")
        for path in (os.path.join(PACKAGE, name), os.path.realpath(os.path.join(PACKAGE, name)))
    )
)
"""How the names of our files begin."""


def is_ours(file: str) -> bool:
    """Whether a file is one of ours, by its absolute name."""
    return file.startswith(OURS)
