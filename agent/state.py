"""What the agent of a process is and holds.

Rules of this file: state and the card that shows it; no thread and no socket. What could not be
done is a sentence in `problems`, for nothing is written to the host's streams or loggers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._version import VERSION
from ..errors import ProbingError
from ..linux import process
from ..linux.file_systems import unfit_for_records
from ..messages.card import Card
from ..rundir import folders as rundir
from ..rundir.folders import ProcessFolder
from ..safety import forks
from ..safety.guard import try_each
from ..server.liveness import Hold
from ..server.sockets import remove_socket
from ..settings import Setting, Settings, find
from .leaving import Leaving
from .recording.no_training import NoTraining, torch_is_ready
from .standing import Standing, Standings

if TYPE_CHECKING:
    from ..ring.writer import Names, RingWriter
    from ..server.certificate import Certificate
    from ..tables import Table
    from .audit.change_log import ChangeRecord
    from .extending.extensions import Extensions
    from .live.kept_environment import KeptEnvironment
    from .recording.training import TorchTraining

_RINGS_MIB = 64
"""What rings take together where the settings do not say."""
_MAKING_S = 1.0
"""How long the making of a file that stays open waits for what else holds forks back."""


class Agent:
    """The agent of one process.

    Attributes:
        folder: The process's run folder.
        settings: As they are in force now.
        training: What is recorded.
        token: What TCP requests must carry; empty without a TCP listener.
        read_token: What those may carry that only read; likewise.
        problems: What could not be done, one sentence each.
        listen: Where it listens for TCP, if it does, see `probing.messages.card.Card`.
        certificate: What it shows there, if that is encrypted.
        unknown: A sentence for each variable that only looks like a setting.
        places: Folders of the operator's who attached: they hold what may be missing here.
        wake: Has the agent's thread look for what is due, from any thread.
        depart: Makes ready to leave the process, keeping the record or not.
        in_force: The actions that hang on the training now, and end with the agent.
        chores: What the agent's thread does now and then; none raises.
    """

    def __init__(self, settings: Settings, folder: ProcessFolder) -> None:
        self.settings = self._initial = settings
        self.folder = folder
        self.training: TorchTraining | NoTraining = NoTraining()
        self.token = self.read_token = ""
        self.certificate: Certificate | None = None
        self._changed: set[str] = set()
        self.unknown: tuple[str, ...] = ()
        self.problems: list[str] = []
        self._standings = Standings(folder)
        self._standing: Standing | None = None
        self._card_facts: tuple[int, int, int] | None = None
        self._launcher_log = process.error_log(os.getppid()) or process.error_log(os.getpid())
        self._started_ns = time.time_ns()
        self.listen: str | None = None
        self.places: tuple[str, ...] = ()
        self.depart: Callable[[bool], Leaving] | None = None
        self._recording_begins = threading.RLock()  # a signal's handler may come back here
        self._is_beginning = False
        self._names: Names | None = None
        self._late_rings: list[RingWriter] = []
        self._changes: ChangeRecord | None = None
        self._environment: KeptEnvironment | None = None
        self.wake: Callable[[], None] = lambda: None
        self.in_force: Callable[[], list[str]] = list
        self.chores: list[Callable[[], None]] = []
        self._hold = Hold()
        self._extensions: Extensions | None = None

    def hold(self) -> None:
        """Have every machine that sees the run folder see that this process lives."""
        self._hold.take(self.folder)

    def await_use(self) -> None:
        """Begin to record at the first use of what is recorded, or when somebody asks."""
        if self.settings.sampling_hz or not self.settings.recording:
            self.record()
        elif type(self.training) is NoTraining and torch_is_ready():
            from .recording.first_use import AwaitedTraining

            self.training = AwaitedTraining(self.record)
            self.training.start()

    def asked(self) -> None:
        """Somebody is about to ask something: have all tables there."""
        self.training.begin()
        self.extensions().load()

    def extensions(self) -> Extensions:
        """What the script and plugins have added."""
        if self._extensions is None:
            with forks.held_back(timeout_s=_MAKING_S):  # no child is made amid an import
                from .extending.extensions import Extensions
            self._extensions = self._extensions or Extensions(self)
        return self._extensions

    def ended_by(self, error: BaseException) -> None:
        """An exception ends the process or a thread of it; never raises."""
        waited_for = self.training
        waited_for.ended_by(error)
        if self.training is not waited_for:  # it has made way for one that records
            self.training.ended_by(error)

    def names(self) -> Names:
        """The names that rows of this process refer to; their file is made when it is first asked.

        Raises:
            OSError: It cannot be made.
        """
        if self._names is None:
            with forks.held_back(timeout_s=_MAKING_S):  # else a child would keep the file
                self._names = self._names or self._made_names()
        return self._names

    def _made_names(self) -> Names:
        """The names, with their file and the limit of the rings that refer to them."""
        from ..ring.space import free_bytes, limit_rings
        from ..ring.writer import Names

        folder = self.folder.path
        why = unfit_for_records(folder)
        if why is not None:
            raise OSError(f"{folder} is on {why}, and what is mapped there can kill the training")
        mib = self.settings.rings_mib
        few = limit_rings((mib or _RINGS_MIB) << 20, None if mib else free_bytes(folder))
        if few is not None:
            self.problems.append(f"{folder}: {few}")
            try_each((self.write_card,))
        names = Names(self.folder.names)
        if not names.goes_on:
            self._remove_rings_with_names()
        return names

    def _remove_rings_with_names(self) -> None:
        """Those there have numbers of names that are lost; some are made with their first row."""
        from ..tables import RECORDED_TABLES

        for table in RECORDED_TABLES:
            if any(column.type == "text" for column in table.columns):
                self.folder.ring(table.name).unlink(missing_ok=True)

    def changes(self) -> ChangeRecord:
        """The record of what is asked of the agent itself; its file is made with the first row."""
        from .audit.change_log import ChangeRecord

        if self._changes is None:
            self._changes = ChangeRecord(self)
        return self._changes

    def record(self, *, late: bool = False) -> None:
        """Begin to record, once torch is there.

        Args:
            late: Whether a training may be in the middle of a step.
        """
        from ..safety.collector import without_collections  # not before anything is recorded

        # torch has just made a few hundred thousand objects: to look through them takes 80 ms.
        with forks.held_back(), self._recording_begins, without_collections():
            if self._is_beginning or not (
                isinstance(self.training, NoTraining) and torch_is_ready()
            ):
                return
            self._is_beginning, before = True, self.training
            try:
                self._record(late=late)
            finally:
                before.close()
                self._is_beginning = False
        self.extensions().load()

    def _record(self, *, late: bool) -> None:
        """Put the training that records in its place."""
        from .recording.training import TorchTraining

        try:
            training = TorchTraining(self.folder, self.settings, interned=self.names())
        except (ProbingError, OSError) as error:
            self.training = NoTraining()
            self.problems.append(f"nothing is recorded: {error}")
            try_each((self.write_card,))
            return
        self.training = training
        training.on_first_step = self._stepped
        if self.settings.recording:
            training.start(late=late)

    def _stepped(self) -> None:
        """The first step is over, says the training thread: there is an environment to keep."""
        if self._environment is not None:
            self._environment.hasten()
        self.wake()

    def keep_environment(self) -> float | None:
        """Keep what the process runs in, if that is due; returns in how many seconds it is next.

        None where that is not known: it trains not yet, and nothing is loaded for that.

        Raises:
            OSError: It cannot be written.
        """
        if self.training.watched() is None:
            return None
        self.refresh_card()
        return self._kept_environment().keep_if_due(self.training)

    def _kept_environment(self) -> KeptEnvironment:
        if self._environment is None:
            with forks.held_back(timeout_s=_MAKING_S):  # no child is made amid an import
                from .live.kept_environment import KeptEnvironment
            self._environment = KeptEnvironment(self.folder)
        return self._environment

    def _keep_environment_once_more(self) -> None:
        """The process ends: what has come since."""
        if self.training.watched() is not None:
            self._kept_environment().keep(self.training)

    def close(self) -> None:
        """Stop recording for good; the record stays, what led to the agent goes.

        Raises:
            OSError: Something of it could not be done; the rest was.
        """
        own = [self._extensions.close] if self._extensions is not None else []
        try_each((self._keep_environment_once_more, *own))  # the last copy does, where it fails
        training, self.training = self.training, NoTraining()
        folder = self.folder
        failed = try_each(
            (
                training.close,
                *([self._changes.close] if self._changes is not None else []),
                *([self._names.close] if self._names is not None else []),
                self._remove_socket,
                self._hold.let_go,
                lambda: folder.token.unlink(missing_ok=True),
                lambda: folder.read_token.unlink(missing_ok=True),
            )
        )
        if failed:
            raise OSError("; ".join(failed))

    def _remove_socket(self) -> None:
        with contextlib.suppress(FileExistsError):  # what is none of ours stays
            remove_socket(self.folder.socket)

    def make_ring(self, table: Table, rows: int) -> RingWriter:
        """A ring that is made when its first row is to be written, closed by who asks for it.

        Raises:
            RingError: The space cannot be had.
        """
        from ..ring.writer import RingWriter

        with forks.held_back(timeout_s=_MAKING_S):  # else a child would keep it
            ring = RingWriter(self.folder.ring(table.name), table, rows)
            self._late_rings.append(ring)
        return ring

    def abandon(self) -> None:
        """Runs in a forked child: let go of the parent's rings and names, whatever lock is held."""
        if self._extensions is not None:
            self._extensions.tables.abandon()
        names = [self._names.close] if self._names is not None else []
        rings = (ring.close for ring in self._late_rings)
        try_each((self.training.close, *names, *rings, self._hold.let_go))

    def card(self) -> Card:
        """Who this process is."""
        standing = self._standing = self._stands()
        place = standing.place
        return Card(
            pid=self.folder.pid,
            start_time=self.folder.start_time,
            boot_id=process.boot_id(),
            pid_namespace=process.pid_namespace(),
            uid=os.getuid(),
            host=socket.gethostname(),
            command=process.command(os.getpid()),
            executable=sys.executable,
            python=".".join(map(str, sys.version_info[:3])),
            version=VERSION,
            started_ns=self._started_ns,
            rank=place.rank,
            local_rank=place.local_rank,
            world_size=place.world_size,
            job=place.job,
            attempt=place.attempt,
            listen=self.listen,
            fingerprint=self.certificate.fingerprint if self.certificate else None,
            problems=(*self.problems, *self.training.problems()),
            error_file=self._standings.error_file(),
            launcher_log=self._launcher_log if place.rank is not None else None,
            parent=os.getppid(),
            has_trained=standing.has_trained,
            is_recording=standing.is_recording,
        )

    def _stands(self) -> Standing:
        return self._standings.now(self.settings, self.training.step())

    def write_card(self) -> None:
        """Put the card into the run folder."""
        self.folder.write_card(self.card())
        self._card_facts = self._facts_of_card()

    def _facts_of_card(self) -> tuple[int, int, int] | None:
        """What tells the card that was written from another; opens no file, for a child to keep."""
        try:
            found = os.stat(self.folder.path / "card.json")
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def refresh_card(self) -> None:
        """Write the card anew when what it says has changed since, or it is damaged."""
        has_changed = self._standing != self._stands() or self.training.problems()
        if has_changed or self._facts_of_card() != self._card_facts:
            with forks.held_back(timeout_s=1.0):  # or a fork would have the file open
                self.write_card()

    def prune(self) -> None:
        """Remove records of ended processes that are too old or too many."""
        directory = rundir.RunDirectory(self.folder.path.parent)
        if directory.folders() == [self.folder]:
            return
        with forks.held_back(timeout_s=_MAKING_S):  # no child is made in the middle of an import
            from ..rundir.pruning import prune
        keep = self.settings
        prune(directory, keep_hours=keep.keep_hours, keep_bytes=keep.keep_mib << 20)

    def change(self, name: str, text: str) -> None:
        """Change one setting while the process runs.

        Raises:
            BadSetting: It cannot be changed, or not to that value.
        """
        self.settings = self.settings.with_value(name, text)
        self._changed.add(changed := find(name).name)
        if changed == "recording" and self.settings.recording:
            self.training.start(late=True)
        elif changed == "recording":
            self.training.pause()
        elif changed == "gradients_every":
            self.training.sample_gradients(self.settings.gradients_every)
        elif changed == "sampling_hz":
            self.training.sample_stacks(self.settings.sampling_hz)

    def source_of(self, setting: Setting) -> str:
        """Where a setting's value comes from."""
        if setting.name in self._changed:
            return "changed at run time"
        was_given = getattr(self._initial, setting.name) != setting.default
        return "set at start" if was_given else "default"


def int_from_env(name: str) -> int | None:
    """An integer from the environment of the job."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
