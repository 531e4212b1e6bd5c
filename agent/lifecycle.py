"""Starts and stops the agent in this process.

Rules of this file: everything the agent holds is reached from `Agent`; `start` and `stop` are
each other's mirror, and stopping twice is harmless. Nothing is written to the host's streams or
loggers; what could not be done is said on the card. A forked child drops the parent's agent
without writing a byte, and may start its own.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys
import time

from .. import process, rundir
from .._version import VERSION
from ..card import Card
from ..errors import ProbingError
from ..rundir import ProcessFolder, write_private
from ..settings import Setting, Settings, find
from .listener import Listener, bind_tcp, bind_unix
from .training import NoTraining, TorchTraining, torch_is_ready


class Agent:
    """The agent of one process.

    Attributes:
        folder: The process's run folder.
        settings: As they are in force now.
        training: What is recorded.
        token: What TCP requests must carry; empty without a TCP listener.
        problems: What could not be done, one sentence each.
        listen: Where it listens for TCP, as ``host:port``, if it does.
    """

    def __init__(self, settings: Settings, folder: ProcessFolder) -> None:
        self.settings = settings
        self.folder = folder
        self.training: TorchTraining | NoTraining = NoTraining()
        self.token = ""
        self._changed: set[str] = set()
        self._initial = settings
        self.problems: list[str] = []
        self._ranks: tuple[int | None, ...] = ()
        self._started_ns = time.time_ns()
        self.listen: str | None = None
        self._listener: Listener | None = None

    def start(self) -> None:
        """Record, bind the sockets, and wait for questions."""
        self.record()
        sockets = [bind_unix(self.folder.socket)]
        if self.settings.listen:
            try:
                self.token = self.settings.token or secrets.token_hex(32)
                tcp, self.listen = bind_tcp(self.settings, _int_env("LOCAL_RANK") or 0)
                sockets.append(tcp)
                write_private(self.folder.token, self.token.encode())
            except (ProbingError, OSError) as error:
                self.problems.append(f"no TCP listener: {error}")
        self.write_card()
        self._listener = Listener(self, sockets)
        self._listener.start()

    def record(self) -> None:
        """Begin to record, once torch is there."""
        if isinstance(self.training, NoTraining) and torch_is_ready():
            try:
                self.training = TorchTraining(self.folder, self.settings)
                if self.settings.recording:
                    self.training.start()
            except (ProbingError, OSError) as error:
                self.problems.append(f"nothing is recorded: {error}")

    def stop(self) -> None:
        """Leave the process as it was; the record stays."""
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        self.training.close()
        self.training = NoTraining()
        self.folder.socket.unlink(missing_ok=True)
        self.folder.token.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Runs in a forked child: let go of everything that is the parent's."""
        self.training.close()
        if self._listener is not None:
            self._listener.abandon()

    def card(self) -> Card:
        """Who this process is."""
        self._ranks = _ranks()
        rank, local_rank, world_size = self._ranks
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
            rank=rank,
            local_rank=local_rank,
            world_size=world_size,
            listen=self.listen,
            problems=(*self.problems, *self.training.problems()),
        )

    def write_card(self) -> None:
        """Put the card into the run folder."""
        self.folder.write_card(self.card())

    def refresh_card(self) -> None:
        """Write the card anew when what it says has changed since."""
        if self._ranks != _ranks() or self.training.problems():
            self.write_card()

    def prune(self) -> None:
        """Remove records of ended processes that are too old or too many."""
        keep = self.settings
        rundir.RunDirectory(self.folder.path.parent).prune(
            keep_hours=keep.keep_hours, keep_bytes=keep.keep_mib << 20
        )

    def change(self, name: str, text: str) -> None:
        """Change one setting while the process runs.

        Raises:
            BadSetting: It cannot be changed, or not to that value.
        """
        self.settings = self.settings.with_value(name, text)
        self._changed.add(find(name).name)
        if self.settings.recording:
            self.training.start()
        else:
            self.training.pause()

    def source_of(self, setting: Setting) -> str:
        """Where a setting's value comes from."""
        if setting.name in self._changed:
            return "changed at run time"
        was_given = getattr(self._initial, setting.name) != setting.default
        return "start" if was_given else "default"


_agent: Agent | None = None


def start(settings: Settings) -> Agent:
    """Start the agent of this process, or return the one that runs.

    Raises:
        ProbingError: The run directory is not safe to use.
        OSError: The run folder or the socket cannot be made.
    """
    global _agent  # noqa: PLW0603 - one agent per process
    if _agent is not None:
        return _agent
    pid = os.getpid()
    directory = rundir.RunDirectory(
        rundir.default_path(settings, runtime_dir=os.environ.get("XDG_RUNTIME_DIR"))
    )
    folder = directory.create_folder(pid, process.start_time(pid) or 0)
    agent = Agent(settings, folder)
    agent.start()
    _agent = agent
    _register_once()
    return agent


def stop() -> None:
    """Stop the agent of this process, if one runs."""
    global _agent
    agent, _agent = _agent, None
    if agent is not None:
        agent.stop()


def current() -> Agent | None:
    """The agent of this process, if one runs."""
    return _agent


def report_failed_start() -> None:
    """Leave a card that says why the agent could not start; called from an ``except``."""
    error = sys.exc_info()[1]
    settings = Settings()
    home = os.environ.get("PROBING_HOME")
    if home:
        settings = Settings(home=home)
    directory = rundir.RunDirectory(
        rundir.default_path(settings, runtime_dir=os.environ.get("XDG_RUNTIME_DIR"))
    )
    folder = directory.create_folder(os.getpid(), process.start_time(os.getpid()) or 0)
    agent = Agent(settings, folder)
    agent.problems.append(f"the agent did not start: {error}")
    agent.write_card()


_registered = False


def _register_once() -> None:
    """Ask to be told about forks and about the end, once per process."""
    global _registered  # noqa: PLW0603 - as `_agent`
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_forked)
        atexit.register(stop)


def _forked() -> None:
    """Runs in a forked child, before anything else does."""
    global _agent
    agent, _agent = _agent, None
    if agent is not None:
        agent.abandon()


def _ranks() -> tuple[int | None, int | None, int | None]:
    """Rank, local rank and world size, as the launcher set them."""
    return _int_env("RANK"), _int_env("LOCAL_RANK"), _int_env("WORLD_SIZE")


def _int_env(name: str) -> int | None:
    """An integer from the environment of the job."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
