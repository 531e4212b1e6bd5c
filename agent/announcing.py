"""Makes the process known beyond its run folder, where that was asked for.

Rules of this file: runs in the agent's own thread, and waits for nothing but the few milliseconds
that starting a process takes; what is done again and again is done in another one. What fails is a
problem on the card, nothing more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ..cluster.registration import AGAIN_S, Registration, as_reached, register
from ..linux import process
from ..own_files import places_of
from ..rundir import folders as rundir, node_card
from ..settings import Settings, find
from .agent_threads import start_thread
from .genuine import has_own_threads
from .state import Agent

_START_S = 20.0
_FILES = frozenset(
    find(name).env
    for name in ("history", "history_spool", "job_dir", "tls_ca", "tls_cert", "tls_key")
)
_LEFT_OUT = frozenset({"PROBING", "PROBING_LISTEN", "PYTHONPATH", "PYTHONSTARTUP"})


def announce(agent: Agent) -> Registering | None:
    """Register the TCP listener, and start the node server of this machine, as the settings say.

    Returns:
        What keeps it registered; None where nothing is.
    """
    settings = agent.settings
    registering = Registering(agent) if settings.job_dir and agent.listen else None
    if registering is not None:
        registering.begin()
    if settings.node and agent.card().local_rank in (None, 0):
        try:
            start_node(rundir.RunDirectory(agent.folder.path.parent), _tokens(settings))
        except (OSError, subprocess.SubprocessError) as error:
            agent.problems.append(f"no node server could be started: {error}")
    return registering


class Registering:
    """Keeps an agent registered: on other machines one that says nothing for long is gone."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._next = 0.0
        self._thread: threading.Thread | None = None
        self._problem = ""

    def begin(self) -> None:
        """Register."""
        self._next = time.monotonic() + AGAIN_S
        self._register(_registration(self._agent))

    def look(self) -> None:
        """Register again where that is long ago, unless the last time has not come to its end.

        Raises:
            NoThread: The process may have none more; it is tried at the next look.
        """
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or time.monotonic() < self._next:
            return
        self._agent.refresh_card()  # as it says the same
        entry = _registration(self._agent)
        if has_own_threads():  # a server of files that is away holds up a thread for ever
            self._thread = start_thread("register", self._register, entry)
        else:
            self._register(entry)
        self._next = time.monotonic() + AGAIN_S

    def _register(self, entry: Registration) -> None:
        """Leave word, and tell what keeps that from being done as long as it does."""
        directory, problem = self._agent.settings.job_dir, ""
        try:
            register(Path(directory), entry)
        except OSError as error:
            problem = f"it is not registered in {directory}: {error.strerror}"
        problems = self._agent.problems
        if problem != self._problem and self._problem in problems:
            problems.remove(self._problem)
        if problem and problem not in problems:
            problems.append(problem)
        self._problem = problem


def _tokens(settings: Settings) -> dict[str, str]:
    """The tokens that were given, as variables: they are in this environment no more."""
    given = {"PROBING_TOKEN": settings.token, "PROBING_READ_TOKEN": settings.read_token}
    return {name: token for name, token in given.items() if token}


def start_node(directory: rundir.RunDirectory, tokens: Mapping[str, str]) -> None:
    """Start a node server, unless one runs.

    The process started here is a go-between that ends at once, so that the node server is no child
    of the training, whose code may wait for all of its children.

    Raises:
        OSError: It cannot be started.
        SubprocessError: It did not start in time, or failed.
    """
    if node_card.read_node(directory) is not None:
        return
    argv = [sys.executable, "-m", "probing.cluster.node", "--detach", "--until-idle"]
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
        cwd="/",
        env={**_environment(directory), **tokens},
    ) as go_between:
        try:
            code = go_between.wait(_START_S)
        except subprocess.TimeoutExpired:
            go_between.kill()  # it would be waited for without an end
            raise
        if code:
            raise subprocess.SubprocessError(f"exit code {code}")


def _environment(directory: rundir.RunDirectory) -> dict[str, str]:
    """What it sees: nothing that would put an agent into it, and where probing and files are."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    for name in _FILES & kept.keys():
        place = kept[name].strip()
        if place and "://" not in place:  # it works in another folder
            kept[name] = os.path.abspath(place)
    places = places_of("probing", "aiohttp", "duckdb", "pyarrow", "numpy")
    return kept | {
        "PROBING_HOME": str(directory.path),
        "PYTHONPATH": os.pathsep.join(places),
        "PYTHONSAFEPATH": "1",
    }


def _registration(agent: Agent) -> Registration:
    """What is left in the directory that all machines see."""
    card = agent.card()
    return Registration(
        kind="agent",
        listen=as_reached(card.listen or ""),
        host=card.host,
        pid=card.pid,
        start_time=card.start_time,
        boot_id=process.boot_id(),
        pid_namespace=process.pid_namespace(),
        job=card.job,
        attempt=card.attempt,
        registered_ns=time.time_ns(),
    )
