"""Which code the process runs: its own files, and the commit that they are of.

Rules of this file: runs in the agent's thread and reads files; no program is started, for that
would fork the training. So the commit is what ``.git`` says, and each file of the job's own is told
by the name that git gives to its content: whoever asks can tell what is not committed. A file that
was changed after the process had started has no such name, since what was loaded is not known.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ...own_files import is_ours
from ...safety import forks

_MOST_FILES = 300
_MOST_BYTES = 1 << 22
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_HOLD_S = 0.1


class Code:
    """The files of the job, each read once.

    Args:
        since_ns: When the process started.
    """

    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._known: dict[str, str | None] = {}
        self._found: str | None = None
        self._places: dict[str, str] = {}

    def rows(self) -> Iterator[tuple[str, str | None]]:
        """Names and values, the script first."""
        script = self._script()
        if script is None:
            return
        repository = _repository_of(script)
        root = str(repository or os.path.dirname(script))
        yield "root", root
        if repository is not None:
            yield from _commit_of(repository)
        for file in self._own_files(root, script):
            if file not in self._known:
                self._known[file] = _content_name(file, self._since_ns)
            yield os.path.relpath(file, root), self._known[file]

    def _own_files(self, root: str, script: str) -> list[str]:
        """The script, and the modules below the root that are no library's."""
        inside = root.rstrip("/") + "/"
        files = [script]
        for module in list(sys.modules.values()):
            file = getattr(module, "__dict__", {}).get("__file__")  # to ask it may load others
            if isinstance(file, str) and file not in self._places:
                self._places[file] = _place_of(file)
            place = self._places[file] if isinstance(file, str) else ""
            if place.startswith(inside):
                files.append(place)
        return list(dict.fromkeys(files))[:_MOST_FILES]

    def _script(self) -> str | None:
        """The file of ``__main__``; `probing run` has its own there before the script and after."""
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        given = os.path.abspath(str(sys.argv[0])) if sys.argv else ""
        for file in (main, self._found, given):
            if isinstance(file, str) and os.path.isfile(file) and not is_ours(file):
                self._found = os.path.realpath(file)
                return self._found
        return None


def _place_of(file: str) -> str:
    """Where a module's file really is; empty for one of a library's or of ours.

    There are thousands of those, and to follow the links of a path takes a call for each folder.
    """
    if not file.endswith(".py") or _LIBRARIES.search(file) or is_ours(file):
        return ""
    place = os.path.realpath(file)
    return "" if _LIBRARIES.search(place) or is_ours(place) else place


def _content_name(file: str, since_ns: int) -> str | None:
    """What git calls the content of a file; None where it may not be what was loaded."""
    try:
        with forks.held_back(timeout_s=_HOLD_S), open(file, "rb") as opened:
            info = os.fstat(opened.fileno())
            if info.st_size > _MOST_BYTES or info.st_mtime_ns > since_ns:
                return None
            data = opened.read(_MOST_BYTES + 1)
    except OSError:
        return None
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _repository_of(script: str) -> Path | None:
    """The nearest folder above that git keeps."""
    folders = Path(script).parents
    return next((folder for folder in folders if os.path.lexists(folder / ".git")), None)


def _commit_of(repository: Path) -> Iterator[tuple[str, str | None]]:
    """The branch and the commit that the files are of, by ``.git`` alone."""
    git = repository / ".git"
    if git.is_file():  # a worktree or a submodule
        git = repository / (_text(git) or "").removeprefix("gitdir:").strip()
    common = git / (_text(git / "commondir") or ".").strip()
    head = (_text(git / "HEAD") or "").strip()
    ref = head.removeprefix("ref:").strip() if head.startswith("ref:") else None
    if ref is not None:
        yield "git branch", ref.removeprefix("refs/heads/")
        head = (_text(git / ref) or _text(common / ref) or _packed(common, ref)).strip()
    if _COMMIT.fullmatch(head):
        yield "git commit", head


def _packed(common: Path, ref: str) -> str:
    """The commit of a branch that has no file of its own."""
    for line in (_text(common / "packed-refs") or "").splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return ""


def _text(path: Path) -> str | None:
    try:
        with forks.held_back(timeout_s=_HOLD_S), path.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
