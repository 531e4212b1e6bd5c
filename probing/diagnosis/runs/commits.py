"""Which files of a run were not as its commit has them.

Rules of this file: git runs beside the command, never in or for the training, and only reads: the
files are told by what they held as they were loaded, so that a later edit changes nothing. Where
the repository is not there any more, or is not this user's, nothing is said.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

from .record import Name

_LIMIT_S = 5.0
_TREE = ("ls-tree", "-r", "-z", "--full-tree")


def not_committed(environment: Mapping[Name, str | None]) -> tuple[str, ...] | None:
    """The files of the job that differ from the commit; None where that cannot be told."""
    root, commit = environment.get(("place", "code root")), environment.get(("code", "git commit"))
    files = {
        name: value
        for (kind, name), value in environment.items()
        if kind == "code" and name.endswith(".py") and value is not None
    }
    if not root or not commit or not files:
        return None
    committed = _contents(root, commit, sorted(files))
    if committed is None:
        return None
    return tuple(name for name, value in sorted(files.items()) if committed.get(name) != value)


def _contents(root: str, commit: str, files: list[str]) -> dict[str, str] | None:
    """What the commit has for some files, by their paths; None where git does not tell."""
    git = shutil.which("git")
    if git is None:
        return None
    argv = [git, "--no-optional-locks", "-C", root, *_TREE, commit, "--", *files]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = {}
    for line in done.stdout.decode("utf-8", "replace").split("\0"):
        about, tab, path = line.partition("\t")
        if tab:
            found[path] = about.rpartition(" ")[2]
    return found
