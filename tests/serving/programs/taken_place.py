"""Puts something where its agent's socket would go, starts the agent, and says what came of it.

taken_place.py file|link|directory|stale|folder
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import probing
from probing.linux import process
from probing.rundir.folders import ProcessFolder, RunDirectory


def take(kind: str, folder: ProcessFolder) -> None:
    """Put it there."""
    folder.path.mkdir(mode=0o777 if kind == "folder" else 0o700, parents=True)
    folder.path.parent.chmod(0o700)
    if kind == "folder":
        folder.path.chmod(0o777)
    elif kind == "file":
        folder.socket.write_text("mine")
    elif kind == "link":
        folder.socket.symlink_to(Path("precious.txt").resolve())
    elif kind == "directory":
        folder.socket.mkdir()
    elif kind == "stale":
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder.socket))


def seen(path: Path) -> tuple[int, int] | None:
    """What tells one file from another that took its place."""
    if not os.path.lexists(path):
        return None
    info = os.lstat(path)
    return info.st_ino, info.st_ctime_ns


if __name__ == "__main__":
    home = RunDirectory(Path(os.environ["PROBING_HOME"]))
    own = home.folder_for(os.getpid(), process.start_time(os.getpid()) or 0)
    take(sys.argv[1], own)
    before = seen(own.socket)
    try:
        probing.start()
        print("started")
    except (probing.ProbingError, OSError) as error:
        print(f"refused: {error}")
    print("kept" if seen(own.socket) == before else "replaced")
