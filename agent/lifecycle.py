"""Starts and stops the agent in this process.

Rules of this file: `start` and `stop` are each other's mirror, and stopping twice is harmless. A
forked child drops the parent's agent without writing a byte, and may start its own.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys

from .. import process, rundir
from ..errors import ProbingError
from ..rundir import ProcessFolder, write_private
from ..settings import Settings
from .listener import Listener, Serving
from .sockets import bind_tcp, bind_unix
from .state import Agent, int_from_env


class Running:
    """A running agent: what it holds, and the thread that answers."""

    def __init__(self, agent: Agent) -> None:
        """Record, bind the sockets, and wait for questions.

        Raises:
            OSError: The unix socket cannot be bound.
        """
        self.agent = agent
        agent.record()
        listening = [bind_unix(agent.folder.socket)]
        if agent.settings.listen:
            try:
                listening.append(_listen_on_tcp(agent))
            except (ProbingError, OSError) as error:
                agent.problems.append(f"no TCP listener: {error}")
        agent.write_card()
        self._listener = Listener(agent, listening, lambda: _make_server(agent))
        self._listener.start()

    def stop(self) -> None:
        """Leave the process as it was."""
        self._listener.stop()
        self.agent.close()

    def abandon(self) -> None:
        """Runs in a forked child: let go of everything that is the parent's."""
        self.agent.training.close()
        self._listener.abandon()


def _listen_on_tcp(agent: Agent) -> socket.socket:
    """A TCP socket as the settings ask for, with the token in its file."""
    agent.token = agent.settings.token or secrets.token_hex(32)
    listening, agent.listen = bind_tcp(agent.settings, int_from_env("LOCAL_RANK") or 0)
    write_private(agent.folder.token, agent.token.encode())
    return listening


def _make_server(agent: Agent) -> Serving:
    """The HTTP server; it and aiohttp are loaded only when somebody asks."""
    from .server import Server

    return Server(agent)


_running: Running | None = None


def start(settings: Settings) -> Agent:
    """Start the agent of this process, or return the one that runs.

    Raises:
        ProbingError: The run directory is not safe to use.
        OSError: The run folder or the socket cannot be made.
    """
    global _running  # noqa: PLW0603 - one agent per process
    if _running is None:
        _running = Running(Agent(settings, _own_folder(settings)))
        _register_once()
    return _running.agent


def stop() -> None:
    """Stop the agent of this process, if one runs."""
    global _running
    running, _running = _running, None
    if running is not None:
        running.stop()


def current() -> Agent | None:
    """The agent of this process, if one runs."""
    return _running.agent if _running is not None else None


def report_failed_start() -> None:
    """Leave a card that says why the agent could not start; called from an ``except``."""
    error = sys.exc_info()[1]
    home = os.environ.get("PROBING_HOME", "")
    settings = Settings(home=home)
    agent = Agent(settings, _own_folder(settings))
    agent.problems.append(f"the agent did not start: {error}")
    agent.write_card()


def _own_folder(settings: Settings) -> ProcessFolder:
    """The run folder of this process, made if need be."""
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR")
    directory = rundir.RunDirectory(rundir.default_path(settings, runtime_dir=runtime_dir))
    return directory.create_folder(os.getpid(), process.start_time(os.getpid()) or 0)


_registered = False


def _register_once() -> None:
    """Ask to be told about forks and about the end, once per process."""
    global _registered  # noqa: PLW0603 - as `_running`
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_forked)
        atexit.register(stop)


def _forked() -> None:
    """Runs in a forked child, before anything else does."""
    global _running
    running, _running = _running, None
    if running is not None:
        running.abandon()
