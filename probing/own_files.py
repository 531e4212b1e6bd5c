"""Which files are ours: frames of them say nothing about the job.

Rules of this file: nothing but paths, found once. `probing/agent` and `probing/cli` may be links
of a checkout, and a file may be named by either way.
"""

from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def _folders(*names: str) -> tuple[str, ...]:
    """How the names of files in folders of the package begin."""
    paths = [os.path.join(_PACKAGE, name) for name in names]
    both = [either for path in paths for either in (path, os.path.realpath(path))]
    return tuple(dict.fromkeys(os.path.join(path, "") for path in both))


OURS = _folders("", "agent", "cli")
"""How the names of our files begin."""
AGENT = _folders("agent")
"""The same of the agent's alone. The program itself may have been started by a file of ours."""


def is_ours(file: str) -> bool:
    """Whether a file is one of ours, by its absolute name."""
    return file.startswith(OURS)
