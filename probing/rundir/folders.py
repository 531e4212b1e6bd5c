"""The run directory: one folder per process, found by anybody of the same user.

    $PROBING_HOME | $XDG_RUNTIME_DIR/probing | /dev/shm/probing-<uid> | /tmp/probing-<uid>
                                (the first of these that is safe, see `places`)
        4242-81234567/          pid and start time, so that a recycled pid is never mistaken; and
                                in a container its pid namespace, whose pids are its own
            card.json           who it is (`probing.messages.card.Card`)
            torch_trace.ring    one file per recorded table
            names               the names that rows refer to
            environment.json    the rows of python.environment, which answers after the process
            live_tables.json    the live tables that plugins have added
            profile.json.gz     the trace of the last profile; as allocations.gz, of allocations
            sock                the agent's unix socket
            held                locked by the agent's process as long as it lives
            token               the token of its TCP listener, if it has one
            read_token          the token that may only read
            attach.py           what is to run in the process to bring its agent, until it has begun
            attach.*            how far an agent on its way in has come, see `rundir.attach_order`
            fatal.txt           what faulthandler wrote at a fatal signal, behind a line of ours
            *exception.json     the unhandled exception that ended it, or a thread of it
            exit_*              who called sys.exit in its last step, and with what code it exited
            terminated          who sent it the last SIGTERM

Rules of this file: paths and files only. A directory that somebody else could write to is
not used, and never repaired. The folder of an ended process is evidence: see `pruning`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import BadRequest, UnsafeRunDirectory
from ..linux import process
from ..linux.foreign_files import open_file, read_file
from ..messages.card import Card
from ..messages.codec import decode, encode, with_checksum, without_checksum
from ..messages.frozen import dataclass
from ..settings import Settings
from . import numbers
from .places import (
    choose,
    chosen_by_env,
    is_looked_after,
    places,
    usual_places,
    way_out,
    why_unsafe,
)

_LONGEST_SOCKET_PATH = 107
_MOST_CARD_BYTES = 8 << 20  # a command line may take 6 MiB


def from_env() -> RunDirectory:
    """The run directory that this process's environment asks for, where it can be believed.

    Raises:
        UnsafeRunDirectory: Others may have written what is there.
    """
    path, runtime_dir = chosen_by_env().path, os.environ.get("XDG_RUNTIME_DIR")
    usual = () if os.environ.get("PROBING_HOME") else usual_places(runtime_dir)
    directory = RunDirectory(path, others=tuple([place for place in usual if place != path]))
    if not is_looked_after(directory.path) and os.path.lexists(directory.path):
        directory.verify()
    return directory


def directory_of(pid: int) -> RunDirectory:
    """The run directory in which a process of this machine has its folder, or would have it.

    For this user's own processes that is the one this environment asks for; for those of others,
    whom only root may look into, the one that their own environment asks for.
    """
    user = process.user(pid)
    if user is None or user.uid == os.getuid():
        return from_env()
    return environment_directory(pid, user)


def environment_directory(pid: int, user: process.User | None = None) -> RunDirectory:
    """The run directory that a process's own environment asks for.

    Args:
        user: Whose the process is; looked up if not given.
    """
    # First: should the number become another's, his place is touched with the first one's rights.
    user = user or process.user(pid)
    env = process.environment(pid)
    uid = os.getuid() if user is None else user.uid
    settings = Settings(home=env.get("PROBING_HOME", ""))
    path = choose(settings, runtime_dir=env.get("XDG_RUNTIME_DIR"), uid=uid).path
    return RunDirectory(path, user=None if uid == os.getuid() else user)


def environment_directories(pid: int) -> list[RunDirectory]:
    """Every run directory in which a process can have its folder, the likeliest first.

    What was passed over as it started may have been made fit for it since.
    """
    env, user = process.environment(pid), process.user(pid)
    uid = os.getuid() if user is None else user.uid
    settings = Settings(home=env.get("PROBING_HOME", ""))
    found = places(settings, runtime_dir=env.get("XDG_RUNTIME_DIR"), uid=uid)
    return [RunDirectory(path) for path in found if why_unsafe(path, uid) is None]


class _File:
    """A file of a process folder, whether or not it is there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: ProcessFolder, owner: type[ProcessFolder]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class ProcessFolder:
    """The folder of one process; `pid` is that here, or of its own namespace if it is not seen.

    Its files stand at the head of this module.
    """

    path: Path
    pid: int
    start_time: int

    socket = _File("sock")
    held = _File("held")
    names = _File("names")
    environment = _File("environment.json")
    live_tables = _File("live_tables.json")
    profile = _File("profile.json.gz")
    allocations = _File("allocations.gz")
    token = _File("token")
    read_token = _File("read_token")
    fatal_signal = _File("fatal.txt")
    exception = _File("exception.json")
    thread_exception = _File("thread_exception.json")
    exit_calls = _File("exit_calls.json")
    exit_code = _File("exit_code")
    terminated = _File("terminated")
    attach_script = _File("attach.py")

    def ring(self, table: str) -> Path:
        """The ring file of a recorded table."""
        return self.path / f"{table}.ring"

    def is_of(self, uid: int | None) -> bool:
        """Whether it was made by a user, or by this one, rather than by somebody in his name."""
        with contextlib.suppress(OSError):
            return os.lstat(self.path).st_uid in (uid, os.getuid())
        return False

    def is_alive(self) -> bool:
        """Whether the process still runs, as far as this pid namespace can tell."""
        return process.is_alive(self.pid, self.start_time) and not self.is_foreign()

    def is_foreign(self) -> bool:
        """Whether its pid means nothing here: of another boot, or a pid namespace not seen into.

        Containers may share a run directory; a directory on a disk outlives its machine's boot.
        """
        card = self.read_card()
        if card is None or card.boot_id != process.boot_id():
            return card is not None
        if self.path.name.startswith(f"{self.pid}-"):
            return card.pid_namespace != process.pid_namespace()
        return process.pid_namespace(self.pid) not in (card.pid_namespace, 0)

    def is_of_this_boot(self) -> bool:
        """Whether the clock that its rows were stamped by is that of this machine, as it runs."""
        card = self.read_card()
        return card is None or card.boot_id == process.boot_id()

    def may_run_elsewhere(self) -> bool:
        """Whether its process may run though its pid is nobody's here, as in a container."""
        card = self.read_card()
        if card is None or not self.is_foreign():
            return False
        if self.is_listened_to() or self.is_held():
            return True
        # One of this machine that took a lock and holds it no more has ended.
        is_told = card.boot_id == process.boot_id() and self.held.exists()
        return not is_told and card.host != socket.gethostname()

    def has_ended(self) -> bool:
        """Whether its process runs nowhere, as far as can be told: its record stays as it is."""
        return not self.is_alive() and not self.may_run_elsewhere()

    def is_listened_to(self) -> bool:
        """Whether an agent holds the socket: it is alive, whatever its pid is to us."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(0)
            with short_path(self.socket) as path:
                return caller.connect_ex(path) in (0, errno.EAGAIN)
        return False

    def is_held(self) -> bool:
        """Whether the process keeps its lock, or that cannot be told: it is alive, wherever it is.

        Not to be asked about the own folder: to close the file gives the lock back.
        """
        try:
            fd = open_file(self.held)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def may_live(self) -> bool:
        """Whether a process that cannot be seen from here may be alive.

        Of another machine's, which a disk without locks says nothing of, that is never known.
        """
        if self.is_listened_to() or self.is_held():
            return True
        card = self.read_card()
        if card is None or card.boot_id == process.boot_id():
            return False
        return card.host != socket.gethostname() and not self.held.exists()

    def read_card(self) -> Card | None:
        """The card, or None when it is missing or damaged."""
        try:
            data = read_file(self.path / "card.json", _MOST_CARD_BYTES)
            return decode(Card, without_checksum(data))
        except (OSError, BadRequest):
            return None

    def write_card(self, card: Card) -> None:
        """Put the card in place, whole or not at all."""
        put_private(self.path / "card.json", with_checksum(encode(card)))


@dataclass(frozen=True)
class RunDirectory:
    """All process folders of one user.

    Attributes:
        user: With whose rights it is written to, see `probing.linux.other_user`; None for this
            process's.
        others: Where else this user's processes may have their folders: they are found there, too,
            and nothing is made there.
    """

    path: Path
    user: process.User | None = None
    others: tuple[Path, ...] = ()

    def each(self) -> tuple[RunDirectory, ...]:
        """This directory and each of the others that is safe, by itself."""
        safe = (path for path in self.others if why_unsafe(path, os.getuid()) is None)
        return (self, *(RunDirectory(path) for path in safe))

    def folder_for(self, pid: int, start_time: int) -> ProcessFolder:
        """The folder of a process by its pid here, whether or not it is there."""
        own = numbers.own_number(pid, start_time)
        path = self.path / numbers.folder_name(own)
        plain = ProcessFolder(self.path / f"{own.number}-{start_time}", pid, start_time)
        card = None if path == plain.path or path.exists() else plain.read_card()
        if card is not None and card.pid_namespace == own.namespace:
            return plain  # its agent is of an earlier version
        return ProcessFolder(path, pid, start_time)

    def create_folder(self, pid: int, start_time: int) -> ProcessFolder:
        """Make the folder of a process, and the run directory where it is missing.

        Raises:
            UnsafeRunDirectory: Somebody else could write to the run directory, or the folder.
            OSError: The folder cannot be made.
        """
        with contextlib.suppress(FileExistsError):  # what is there is looked at
            self.path.mkdir(mode=0o700, parents=True)
        self.verify()
        folder = self.folder_for(pid, start_time)
        with contextlib.suppress(FileExistsError):
            folder.path.mkdir(mode=0o700)
        self.verify(folder.path)
        return folder

    def verify(self, inside: Path | None = None) -> None:
        """Check that only its owner can write to the directory, or to what is in it.

        Raises:
            UnsafeRunDirectory: It is a link, not a directory, another user's, or open to others.
        """
        path, uid = inside or self.path, os.getuid() if self.user is None else self.user.uid
        why = why_unsafe(path, uid)
        if why is not None:
            raise UnsafeRunDirectory(str(path), why, help=f"{way_out(path)}.")

    def folders(self) -> list[ProcessFolder]:
        """Every process folder, newest first; of a process with several, the one in use."""
        found: dict[str, tuple[int, ProcessFolder]] = {}
        for entry, info in (seen for place in self.each() for seen in scan(place.path)):
            folder = folder_at(Path(entry.path))
            if folder is None:
                continue
            known = found.get(entry.name)
            if known is None or in_use((known[1], folder)) == folder:
                found[entry.name] = info.st_mtime_ns, folder
        newest_first = sorted(found.values(), key=lambda item: item[0], reverse=True)
        return [folder for _, folder in newest_first]

    def named(self, name: str) -> ProcessFolder | None:
        """The process folder of a name, see `folders`; None where there is none."""
        found = [folder_at(place.path / name) for place in self.each()]
        return in_use([folder for folder in found if folder is not None])


def in_use(folders: Sequence[ProcessFolder]) -> ProcessFolder | None:
    """Of the folders of one process in several places, that of its agent; None where there is none.

    It is the newest of those with a card: an agent that has left, and an attach, leave theirs.
    """

    def rank(folder: ProcessFolder) -> tuple[bool, int]:
        with contextlib.suppress(OSError):
            has_card = (folder.path / "card.json").exists()
            return has_card, folder.path.stat().st_mtime_ns
        return False, 0

    return max(folders, key=rank, default=None)


def folder_at(path: Path) -> ProcessFolder | None:
    """The process folder at a path; None when its name is not that of one."""
    own = numbers.read_name(path.name)
    if own is None or not path.is_dir():
        return None
    return ProcessFolder(path, numbers.number_here(own, path / "held"), own.started)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, replacing what a crash left there.

    Raises:
        OSError: It cannot be written whole.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        while data:  # after a part of it the next call tells what is in the way of the rest
            written = os.write(fd, data)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            data = data[written:]
    finally:
        os.close(fd)


def put_private(path: Path, data: bytes) -> None:
    """Put such a file in place, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    write_private(new, data)
    os.replace(new, path)


def scan(path: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """The entries of a directory, without those that go meanwhile; none when it is not there."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield entry, entry.stat(follow_symlinks=False)


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The path itself, or where it is too long for a socket address, a short one to the same."""
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/thread-self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
