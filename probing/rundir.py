"""The run directory: one folder per process, found by anybody of the same user.

    $PROBING_HOME | $XDG_RUNTIME_DIR/probing | /dev/shm/probing-<uid>
        4242-81234567/          pid and start time, so that a recycled pid is never mistaken
            card.json           who it is (`probing.card.Card`)
            torch_trace.ring    one file per recorded table
            names               the names that rows refer to
            sock                the agent's unix socket
            token               the token of its TCP listener, if it has one
            attach.py           what an agent on its way in will run, see `probing.attaching`
            fatal.txt           what faulthandler wrote at a fatal signal, behind a line of ours
            exception.json      the unhandled exception that ended it
            thread_exception.json   one that ended a thread of it

Rules of this file: paths and files only. A directory that somebody else could write to is
refused, never repaired. The folder of an ended process is evidence: it goes by age and
total size, not at exit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import process
from .card import Card
from .codec import decode, encode
from .errors import BadRequest, UnsafeRunDirectory
from .settings import Settings

_LONGEST_SOCKET_PATH = 107


def default_path(settings: Settings, *, runtime_dir: str | None, uid: int | None = None) -> Path:
    """Where the run directory is.

    Args:
        runtime_dir: The value of XDG_RUNTIME_DIR, if it is set.
        uid: The user whose directory it is; this process's if not given.
    """
    if settings.home:
        return Path(settings.home)
    if runtime_dir and os.path.isdir(runtime_dir):
        return Path(runtime_dir) / "probing"
    return Path(f"/dev/shm/probing-{os.getuid() if uid is None else uid}")  # noqa: S108 - `verify` makes it safe


def from_env() -> RunDirectory:
    """The run directory that this process's environment asks for."""
    settings = Settings.from_env({k: v for k, v in os.environ.items() if k == "PROBING_HOME"})
    return RunDirectory(default_path(settings, runtime_dir=os.environ.get("XDG_RUNTIME_DIR")))


def directory_of(pid: int) -> RunDirectory:
    """The run directory in which a process of this machine has its folder, or would have it.

    For this user's own processes that is the one this environment asks for; for those of others,
    whom only root may look into, the one that their own environment asks for.
    """
    owner = process.owner(pid)
    if owner is None or owner == os.getuid():
        return from_env()
    return environment_directory(pid)


def environment_directory(pid: int) -> RunDirectory:
    """The run directory that a process's own environment asks for."""
    env, owner = process.environment(pid), process.owner(pid)
    uid = os.getuid() if owner is None else owner
    settings = Settings(home=env.get("PROBING_HOME", ""))
    path = default_path(settings, runtime_dir=env.get("XDG_RUNTIME_DIR"), uid=uid)
    return RunDirectory(path, owner=uid)


@dataclass(frozen=True, slots=True)
class ProcessFolder:
    """The folder of one process, alive or ended."""

    path: Path
    pid: int
    start_time: int

    @property
    def socket(self) -> Path:
        """The agent's unix socket."""
        return self.path / "sock"

    @property
    def names(self) -> Path:
        """The names file."""
        return self.path / "names"

    @property
    def profile(self) -> Path:
        """The trace of the last profile, gzipped."""
        return self.path / "profile.json.gz"

    @property
    def allocations(self) -> Path:
        """The last recording of allocations, gzipped."""
        return self.path / "allocations.gz"

    @property
    def token(self) -> Path:
        """The file that holds the TCP token."""
        return self.path / "token"

    @property
    def fatal_signal(self) -> Path:
        """Where faulthandler writes at a fatal signal."""
        return self.path / "fatal.txt"

    @property
    def exception(self) -> Path:
        """The record of the unhandled exception that ended the process."""
        return self.path / "exception.json"

    @property
    def thread_exception(self) -> Path:
        """The record of an unhandled exception that ended a thread."""
        return self.path / "thread_exception.json"

    @property
    def attach_script(self) -> Path:
        """What is to run in the process to bring its agent; gone once it has begun."""
        return self.path / "attach.py"

    def ring(self, table: str) -> Path:
        """The ring file of a recorded table."""
        return self.path / f"{table}.ring"

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return process.is_alive(self.pid, self.start_time)

    def read_card(self) -> Card | None:
        """The card, or None when it is missing or damaged."""
        try:
            return decode(Card, (self.path / "card.json").read_bytes())
        except (OSError, BadRequest):
            return None

    def write_card(self, card: Card) -> None:
        """Put the card in place, whole or not at all."""
        write_private(self.path / "card.json.new", encode(card))
        os.replace(self.path / "card.json.new", self.path / "card.json")

    def size(self) -> int:
        """Bytes that the folder's files take."""
        return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in _scan(self.path))


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """All process folders of one user.

    Attributes:
        owner: The user; this process's unless said otherwise.
    """

    path: Path
    owner: int = field(default_factory=os.getuid)

    def folder_for(self, pid: int, start_time: int) -> ProcessFolder:
        """The folder of a process, whether or not it is there."""
        return ProcessFolder(self.path / f"{pid}-{start_time}", pid, start_time)

    def create_folder(self, pid: int, start_time: int) -> ProcessFolder:
        """Make the folder of a process, and the run directory where it is missing.

        Raises:
            UnsafeRunDirectory: Somebody else could write to the run directory.
            OSError: The folder cannot be made.
        """
        self._make(self.path)
        self.verify()
        folder = self.folder_for(pid, start_time)
        self._make(folder.path)
        return folder

    def _make(self, path: Path) -> None:
        """Make a directory of the owner's, unless it is there."""
        try:
            path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            return
        if self.owner != os.getuid():
            os.chown(path, self.owner, -1)

    def verify(self) -> None:
        """Check that only its owner can write to the directory.

        Raises:
            UnsafeRunDirectory: It is a link, not a directory, another user's, or open to others.
        """
        info = os.lstat(self.path)
        if not stat.S_ISDIR(info.st_mode):
            raise UnsafeRunDirectory(str(self.path), "it is not a directory")
        if info.st_uid != self.owner:
            raise UnsafeRunDirectory(str(self.path), f"it belongs to user {info.st_uid}")
        if stat.S_IMODE(info.st_mode) & 0o077:
            raise UnsafeRunDirectory(
                str(self.path), f"its mode is {stat.S_IMODE(info.st_mode):o}, not 700"
            )

    def folders(self) -> list[ProcessFolder]:
        """Every process folder, newest first."""
        found = []
        for entry in _scan(self.path):
            folder = folder_at(Path(entry.path))
            if folder is not None:
                found.append((entry.stat(follow_symlinks=False).st_mtime_ns, folder))
        found.sort(key=lambda item: item[0], reverse=True)
        return [folder for _, folder in found]

    def prune(self, *, keep_hours: float, keep_bytes: int) -> list[ProcessFolder]:
        """Remove records of ended processes: the too old, then the oldest over the quota.

        A folder of another boot or pid namespace is judged by age alone: whether its process
        lives cannot be told from here.
        """
        now, namespace, boot = time.time(), process.pid_namespace(), process.boot_id()
        removed, total = [], 0
        for folder in self.folders():
            if folder.is_alive():
                continue
            card = folder.read_card()
            foreign = card is not None and (card.pid_namespace, card.boot_id) != (namespace, boot)
            age_h = (now - _newest_change(folder.path)) / 3600
            total += folder.size()
            if age_h > keep_hours or (total > keep_bytes and not foreign):
                shutil.rmtree(folder.path, ignore_errors=True)
                removed.append(folder)
        return removed


def folder_at(path: Path) -> ProcessFolder | None:
    """The process folder at a path; None when its name is not that of one."""
    pid, dash, started = path.name.partition("-")
    if not (dash and pid.isdecimal() and started.isdecimal() and path.is_dir()):
        return None
    return ProcessFolder(path, int(pid), int(started))


def write_private(path: Path, data: bytes, *, owner: int | None = None) -> None:
    """Write a file that only its owner can read, replacing what a crash left there.

    Args:
        owner: The user whom root gives it to.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, data)
        if owner is not None and owner != os.getuid():
            os.fchown(fd, owner, -1)
    finally:
        os.close(fd)


def _scan(path: Path) -> Iterator[os.DirEntry[str]]:
    """The entries of a directory; none when it is not there."""
    try:
        with os.scandir(path) as entries:
            yield from entries
    except OSError:
        return


def _newest_change(path: Path) -> float:
    """When anything in a folder last changed, in seconds since the epoch."""
    times = [entry.stat(follow_symlinks=False).st_mtime for entry in _scan(path)]
    return max(times, default=0.0)


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The path itself, or where it is too long for a socket address, a short one to the same."""
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
