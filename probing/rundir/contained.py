"""Processes of containers: whether one is in another, what it is called there, where its files lie.

Rules of this file: reads /proc and the names of run folders. What it finds is for sentences that
tell a user how to ask; nothing that lies in another container is opened.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..linux import process
from ..settings import Settings
from .folders import RunDirectory
from .numbers import own_number, read_name
from .places import places


def is_in_another(pid: int) -> bool:
    """Whether the pids, or the files, of a process are other ones than those of this process."""
    return _differs(pid, "pid") or _differs(pid, "mnt")


def way_to_attach(pid: int) -> str:
    """The command that attaches to a process of a container, in its namespaces.

    Who made those without being root must become in them who made them, and can.
    """
    user = " --user --preserve-credentials" if _differs(pid, "user") else ""
    return f"nsenter --target {pid}{user} --mount --pid -- probing attach {number_inside(pid)}"


def number_inside(pid: int) -> int:
    """What a live process is called in its own pid namespace."""
    return own_number(pid, process.start_time(pid) or 0).number


def called_so_inside(number: int, directory: RunDirectory) -> list[int]:
    """The pids here of live processes whose own pid in their containers is this number."""
    return [
        folder.pid
        for folder in directory.folders()
        if folder.pid != number
        and (name := read_name(folder.path.name)) is not None
        and name.number == number
        and folder.is_alive()
    ]


def directory_through_root(pid: int) -> Path | None:
    """The run directory that a process of a container has its folder in, by its path from here.

    None where it has no folder, or this user may not look into its files.
    """
    env, started = process.environment(pid), process.start_time(pid)
    runtime_dir, uid = env.get("XDG_RUNTIME_DIR"), _uid_inside(pid)
    if started is None or uid is None:
        return None
    root = Path(f"/proc/{pid}/root")
    found = places(Settings(home=env.get("PROBING_HOME", "")), runtime_dir=None, uid=uid)
    named = [Path(runtime_dir) / "probing"] if runtime_dir else []
    for path in (*found[:1], *named, *found[1:]):
        seen = root / str(path).lstrip("/")
        if os.path.isdir(RunDirectory(seen).folder_for(pid, started).path):  # or it is closed
            return seen
    return None


def _uid_inside(pid: int) -> int | None:
    """By which number a process's own user namespace calls its user; None where it tells none."""
    user = process.user(pid)
    try:
        lines = Path(f"/proc/{pid}/uid_map").read_text("ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        inside, outside, count = (int(word) for word in line.split())
        if user is not None and outside <= user.uid < outside + count:
            return inside + user.uid - outside
    return None


def _differs(pid: int, namespace: str) -> bool:
    """Whether a process is in another namespace of that kind than this one."""
    try:
        its = os.stat(f"/proc/{pid}/ns/{namespace}").st_ino
        return its != os.stat(f"/proc/self/ns/{namespace}").st_ino
    except OSError:
        return False
