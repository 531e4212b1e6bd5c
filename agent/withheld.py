"""Tokens are the agent's: they leave the environment that the training hands to its children.

Rules of this file: loaded only where a token was given, or may be inherited. What the environment
held is kept in the files of the run folder, which only its user can read, as the tokens are that
were made. There a process of the same job finds them whose parents an agent has taken them from:
a rank that `torch.multiprocessing.spawn` started, a program that the training runs again.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from ..linux import process
from ..rundir import node_card
from ..rundir.folders import ProcessFolder, RunDirectory, write_private
from ..settings import Settings, find

_NAMES = tuple([find(name).env for name in ("token", "read_token")])
_MOST_PARENTS = 16


def completed(settings: Settings, folder: ProcessFolder) -> Settings:
    """The settings with the tokens of the nearest process above that had some, if none are given.

    Args:
        folder: This process's own; what it was before an exec comes first.
    """
    if settings.token or settings.read_token:
        return settings
    directory = RunDirectory(folder.path.parent)
    for pid, started in _line(folder.pid):
        above = directory.folder_for(pid, started)
        token, read_token = (_told(path) for path in (above.token, above.read_token))
        if token or read_token:
            return dataclasses.replace(settings, token=token, read_token=read_token)
    return settings


def _told(path: Path) -> str:
    return node_card.read_token(path) or ""


def _line(pid: int) -> Iterator[tuple[int, int]]:
    """A process, its parent and so on, with the times at which they started."""
    for _ in range(_MOST_PARENTS):
        started, facts = process.start_time(pid), process.facts(pid)
        if started is None or facts is None:
            return
        yield pid, started
        pid = facts.parent


class Withheld:
    """What was taken out of the environment."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def take(self, settings: Settings, folder: ProcessFolder) -> None:
        """Take the tokens out of the environment, once they are in the folder.

        Raises:
            OSError: They cannot be written there; then they stay where they are.
        """
        given = ((settings.token, folder.token), (settings.read_token, folder.read_token))
        for token, path in given:
            if token:
                write_private(path, token.encode())
        for name in _NAMES:
            if name in os.environ:
                self._taken[name] = os.environ[name]
                _blank(name)
                del os.environ[name]

    def give_back(self) -> None:
        """Put back what was there, unless the host has set it anew."""
        for name, value in self._taken.items():
            os.environ.setdefault(name, value)
        self._taken.clear()


def _blank(name: str) -> None:
    """Write over what the kernel shows as the environment that the process was started with."""
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    place = library.getenv(name.encode())
    if place:
        ctypes.memset(place, ord("*"), len(ctypes.string_at(place)))
