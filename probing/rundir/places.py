"""Where the run directory can be, and which of these places is taken.

Rules of this file: looks at paths and makes none. Agent and commands go by the same rule, and so
come to the same place. One that somebody else could write to, or has made first, is passed over and
never repaired; so is one where a mapped file can kill the training, or where nothing can be made.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..linux.file_systems import MOUNTS, unfit_for_records
from ..settings import Settings


class Chosen(NamedTuple):
    """The place of a run directory.

    Attributes:
        passed: Those that would have come before it, each with the reason why it was not taken.
    """

    path: Path
    passed: tuple[tuple[Path, str], ...] = ()


def chosen_by_env() -> Chosen:
    """The place that this process's environment leads to, and those that were passed over."""
    settings = Settings.from_env({k: v for k, v in os.environ.items() if k == "PROBING_HOME"})
    if settings.home and is_looked_after(Path(settings.home)):
        return Chosen(Path(settings.home))
    return choose(settings, runtime_dir=os.environ.get("XDG_RUNTIME_DIR"))


def is_looked_after(home: Path) -> bool:
    """Whether it is another user's, for whom root asks, and nobody else can write to it."""
    with contextlib.suppress(OSError):
        info = os.stat(home)
        return os.getuid() == 0 != info.st_uid and not stat.S_IMODE(info.st_mode) & 0o022
    return False


def choose(
    settings: Settings,
    *,
    runtime_dir: str | None,
    uid: int | None = None,
    memory_dir: str = "/dev/shm",  # noqa: S108 - `why_unsafe` makes it safe
    mounts: Path = MOUNTS,
) -> Chosen:
    """The first place that is fit for records and safe; the last one where none is.

    Args:
        runtime_dir: The value of XDG_RUNTIME_DIR, if it is set.
        uid: The user whose directory it is; this process's if not given.
        memory_dir: Where files are kept in memory.
        mounts: See `file_systems`.
    """
    passed: list[tuple[Path, str]] = []
    owner = os.getuid() if uid is None else uid
    for path in _places(settings, runtime_dir, owner, memory_dir):
        kind = unfit_for_records(path, mounts=mounts)
        why = (
            f"it is on {kind}, so that a mapped file there can kill the training" if kind else None
        )
        why = why or why_unsafe(path, owner) or _why_not_made(path, owner)
        if why is None:
            return Chosen(path, tuple(passed))
        passed.append((path, why))
    (last, _) = passed.pop()
    return Chosen(last, tuple(passed))


def places(settings: Settings, *, runtime_dir: str | None, uid: int) -> tuple[Path, ...]:
    """Every place in which a process may have its folder, in their order."""
    return tuple(_places(settings, runtime_dir, uid, "/dev/shm"))  # noqa: S108 - as above


def own_place(settings: Settings) -> Chosen:
    """Where the run directory of this process is to be."""
    return choose(settings, runtime_dir=os.environ.get("XDG_RUNTIME_DIR"))


def lasting_home(settings: Settings) -> str:
    """The run directory that is asked for, or without any the one that outlives a login."""
    return str(choose(settings, runtime_dir=None).path)


def moved(settings: Settings, folder: Path) -> list[str]:
    """What to say where the record of this process is not in the place that was asked for."""
    passed = own_place(settings).passed
    if not passed:
        return []
    (first, why), *_ = passed
    asked = f"PROBING_HOME, {first}" if settings.home else str(first)
    return [f"the record is in {folder}, not in {asked}: {why}; {way_out(first)}"]


def usual_places(runtime_dir: str | None) -> tuple[Path, ...]:
    """Where this user's processes are without PROBING_HOME, whatever else was set as they started.

    A login has XDG_RUNTIME_DIR; cron, a batch system, `sudo` and a service need not have it.

    Args:
        runtime_dir: The value of XDG_RUNTIME_DIR here, if it is set.
    """
    uid = os.getuid()
    bases = (runtime_dir, f"/run/user/{uid}")
    found = [path for base in bases for path in _places(Settings(), base, uid, "/dev/shm")]  # noqa: S108 - as above
    return tuple(dict.fromkeys(found))


def why_unsafe(path: Path, uid: int) -> str | None:
    """Why somebody else than a user may write there or have written; None where nobody may.

    Args:
        path: It need not be there.
    """
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"it cannot be looked at ({error.strerror})"
    if not stat.S_ISDIR(info.st_mode):
        return "it is not a directory"
    if info.st_uid != uid:
        return f"it belongs to user {info.st_uid}"
    if stat.S_IMODE(info.st_mode) & 0o077:
        return f"its mode is {stat.S_IMODE(info.st_mode):o}, not 700"
    return None


def way_out(path: Path) -> str:
    """What whoever is told that a place was passed over can do about it."""
    try:
        info = os.lstat(path)
    except OSError:
        info = None
    if info is not None and stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid():
        return f"`chmod 700 {path}` has the next start use it"
    return "PROBING_HOME should name a folder that is yours alone"


def _places(
    settings: Settings, runtime_dir: str | None, uid: int, memory_dir: str
) -> Iterator[Path]:
    """See `places`."""
    if settings.home:
        yield Path(settings.home)
    if runtime_dir and os.path.isdir(runtime_dir):
        yield Path(runtime_dir) / "probing"
    for base in dict.fromkeys((memory_dir, "/tmp")):  # noqa: S108 - as above
        if os.path.isdir(base) or base == "/tmp":  # noqa: S108
            yield Path(base) / f"probing-{uid}"


def _why_not_made(path: Path, uid: int) -> str | None:
    """Why this user cannot make a directory there; None where it is there or can be made."""
    if uid != os.getuid() or os.path.lexists(path):
        return None
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if os.access(above, os.W_OK | os.X_OK):
        return None if above.is_dir() else f"{above} is not a directory"
    return f"nothing can be made in {above}"
