"""Waits for the first question; until then the agent is one sleeping thread.

Rules of this file: runs in the agent's own daemon thread, which blocks all signals so that the
host's handlers run where they always did. Sockets are bound before the thread starts, so that
a failure is known at once. A ping is answered here, with bytes made beforehand; anything else
loads the HTTP server, which then goes on in this same thread. It is loaded in another one, which on
a busy machine takes seconds: meanwhile pings are answered, for this process does run Python code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..messages.card import Pong
from ..messages.codec import encode
from ..safety.guard import try_each
from ..server.sockets import close_connections, is_welcome
from .genuine import genuine, has_own_threads
from .recording.safe_points import AGENT_THREAD_PREFIX
from .state import Agent

if TYPE_CHECKING:
    from .announcing import Registering

_POLL, _POLLIN = genuine("select", "poll"), genuine("select", "POLLIN")
"""Held here, as eventlet takes them out of their module."""
_PEEK_S = 1.0
_RETRY_S = 0.1
_LIVES = 3
_ATTEND_S = 60.0
"""How often it is looked whether the run folder is there."""
_MOST_WAKES = 64
_LOOK_S = 0.01
"""How often it is looked whether the server is there."""
_MOST_WAITING = 8
"""Connections that are held until then; the next ones stay in the kernel's queue."""
_KEPT = (
    "its run folder was removed, and it begins no new one by itself as long as an action of `act`"
    " is in force, which ends with that: `probing attach` has it do so"
)
_PING = b"GET /v1/ping "


class Serving(Protocol):
    """What a server must offer to go on in the listener's thread."""

    def run(self, sockets: list[socket.socket], waiting: Sequence[socket.socket]) -> None:
        """Serve until stopped, beginning with connections that are already accepted."""

    def stop(self) -> None:
        """End `run`, from any thread."""

    def wake(self) -> None:
        """Have it do what is due, from any thread."""

    def abandon(self) -> None:
        """Runs in a forked child: let go of the parent's connections."""


class Listener:
    """The agent's thread and its sockets.

    Args:
        make_server: Makes the server, which is to call what it is given again and again.
        renew: Has the agent start anew where its run folder has gone.
    """

    def __init__(
        self,
        agent: Agent,
        sockets: list[socket.socket],
        make_server: Callable[[Agent, Callable[[], float]], Serving],
        renew: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._make_server: Callable[[], Serving] = lambda: make_server(agent, self._attend)
        self._renew = renew
        self._sockets = sockets
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._server: Serving | None = None
        self._waiting: list[socket.socket] = []
        self._is_stopped = False
        self._is_prepared = False
        self._registering: Registering | None = None
        self._pong = _pong()
        self._thread = threading.Thread(
            target=self._run, name=f"{AGENT_THREAD_PREFIX}agent", daemon=True
        )

    def start(self) -> None:
        """Begin to wait."""
        if has_own_threads():
            self._thread.start()
        else:  # it would begin a greenlet of the thread that trains
            genuine("_thread", "start_new_thread")(self._run, ())

    def stop(self) -> None:
        """End the thread and close the sockets; returns within 2 s."""
        self._is_stopped = True
        if self._wake_writer >= 0:  # it has not been stopped before
            os.write(self._wake_writer, b"x")
        if self._server is not None:
            self._server.stop()
        # It is not alive either when it could not be started.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2.0)
        self._close()

    def wake(self) -> None:
        """Have the thread look for what is due, from any thread."""
        with contextlib.suppress(OSError):  # the pipe is full: it is about to look
            os.write(self._wake_writer, b"x")
        if self._server is not None:
            self._server.wake()

    def abandon(self) -> None:
        """Runs in a forked child: close the parent's sockets, and nothing more."""
        serving = [self._server.abandon] if self._server is not None else []
        waiting = (connection.close for connection in self._waiting)
        try_each((*serving, *waiting, lambda: close_connections(self._sockets)))
        self._close()

    def _close(self) -> None:
        try_each(server.close for server in self._sockets)
        for fd in (self._wake_reader, self._wake_writer):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._wake_reader = self._wake_writer = -1

    def _run(self) -> None:
        """The thread: serve, again after a failure, and close the sockets after too many.

        Whatever gets here must not reach the host's stderr. A SystemExit would end the thread
        without a word, and leave sockets on which everybody waits for ever.
        """
        problems = self._agent.problems
        for life in range(1, _LIVES + 1):
            try:
                self._prepare()
                self._serve()
                return
            except BaseException as error:  # noqa: BLE001 - never harm the host
                what = f"{type(error).__name__}: {error}".rstrip(": ")
                is_last = life == _LIVES
                problems.append(f"the server failed: {what}" + "; it is off" * is_last)
                try_each((self._close_sockets,) if is_last else ())
                try_each((self._agent.write_card,))

    def _close_sockets(self) -> None:
        """Have clients refused at once from now on, rather than wait."""
        try_each(server.close for server in self._sockets)

    def _prepare(self) -> None:
        """Prune old records and make it known, once; what fails of it is only told."""
        if not self._is_prepared:
            self._is_prepared = True
            failed = try_each((_block_signals, self._agent.prune, self._announce))
            self._agent.problems.extend(f"while the agent started: {what}" for what in failed)

    def _announce(self) -> None:
        """Make it known to others, if the settings say so."""
        if self._agent.settings.node or self._agent.settings.job_dir:
            from .announcing import announce

            self._registering = announce(self._agent)

    def _attend(self) -> float:
        """Do what is due; returns in how many seconds it is next."""
        again = [self._registering.look] if self._registering is not None else []
        return attend(self._agent, self._renew, *self._agent.chores, *again)

    def _serve(self) -> None:
        """Wait, and serve from the first real question on."""
        self._waiting = []
        if not self._wait():
            return
        try:
            self._server = self._load()
        except BaseException:
            try_each(connection.close for connection in self._waiting)
            raise
        if self._is_stopped:  # while it was being loaded
            self._server.stop()
        self._server.run(self._sockets, self._waiting)

    def _load(self) -> Serving:
        """Load the server, and answer pings until it is there."""
        made: list[Serving] = []
        failures: list[BaseException] = []

        def load() -> None:
            try:
                made.append(self._make_server())
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)

        if not has_own_threads():
            return self._make_server()  # threads are greenlets of this one, which would not run
        name = f"{AGENT_THREAD_PREFIX}load"
        loading = threading.Thread(target=load, name=name, daemon=True)
        try:
            loading.start()
        except RuntimeError:  # the process may have no more threads
            return self._make_server()
        self._wait(loading)
        loading.join()
        if failures:
            raise failures[0]
        return made[0]

    def _wait(self, loading: threading.Thread | None = None) -> bool:
        """Answer pings until somebody asks more; False when it is time to stop.

        Args:
            loading: What loads the server: then until that is done, and who asks more waits.
        """
        waiting = _POLL()
        for fd in (*(server.fileno() for server in self._sockets), self._wake_reader):
            waiting.register(fd, _POLLIN)
        by_fd = {server.fileno(): server for server in self._sockets}
        for server in self._sockets:
            server.settimeout(0)  # who wanted to connect may have gone
        is_over = False
        while not (is_over or self._is_stopped):
            limit_s = self._attend() if loading is None else _LOOK_S
            ready = [fd for fd, _ in waiting.poll(limit_s * 1000)]
            if self._wake_reader in ready:
                os.read(self._wake_reader, _MOST_WAKES)
            for fd in ready:
                if fd in by_fd and len(self._waiting) < _MOST_WAITING:
                    self._take(by_fd[fd])
            if loading is None:
                is_over = bool(self._waiting)
                continue
            is_over = not loading.is_alive()
            if len(self._waiting) == _MOST_WAITING:
                loading.join(_LOOK_S)
        return is_over

    def _take(self, server: socket.socket) -> None:
        """Take a connection, and keep it where it is more than a ping."""
        connection = self._accept(server)
        if connection is not None:
            self._waiting.append(connection)

    def _accept(self, server: socket.socket) -> socket.socket | None:
        """The next connection, unless it is not welcome, asked nothing or was only a ping."""
        try:
            connection, _ = server.accept()
        except OSError:  # out of descriptors, or a peer gone already: the host needs air
            time.sleep(_RETRY_S)
            return None
        try:
            if not is_welcome(connection):
                connection.close()
                return None
            if connection.family != socket.AF_UNIX:
                return connection
            connection.settimeout(_PEEK_S)
            if _begins_other_than_ping(connection):
                return connection
            try_each((self._agent.refresh_card,))  # a full disk is no reason to be silent
            connection.recv(65536)
            connection.sendall(self._pong)  # fails where the other end has only looked who is here
        except OSError:
            pass
        connection.close()
        return None


def attend(agent: Agent, *looks: Callable[[], None]) -> float:
    """Do what is due; returns in how many seconds it is next.

    Args:
        looks: Do what else is due by then.
    """
    waits: list[float | None] = []
    try_each((lambda: waits.append(agent.keep_environment()), *looks))
    return min([_ATTEND_S, *(wait_s for wait_s in waits if wait_s is not None)])


def keeps_actions(agent: Agent) -> bool:
    """Whether an agent whose run folder has gone begins no new one before it is told to.

    What is in force would end, and on each rank at another step.
    """
    if not agent.in_force():
        return False
    if _KEPT not in agent.problems:
        agent.problems.append(_KEPT)
    return True


def _block_signals() -> None:
    """Have the host's handlers run where they always did.

    But for SIGBUS, which a thread that writes to a ring gets where somebody has cut it short.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGBUS})


def _begins_other_than_ping(connection: socket.socket) -> bool:
    """Whether the server is needed for it.

    It is for one that says nothing, too: here the next one would have to wait until it is given up.
    """
    try:
        return connection.recv(len(_PING), socket.MSG_PEEK) not in {_PING, b""}
    except TimeoutError:
        return True


def _pong() -> bytes:
    """The whole answer to a ping."""
    body = encode(Pong(pid=os.getpid()))
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
