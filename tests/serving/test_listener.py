"""The agent's thread before there is a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.listener import Listener
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython

PING = b"GET /v1/ping HTTP/1.1\r\nHost: x\r\n\r\n"
QUESTION = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"


class SlowServer:
    """Takes as long to load as the test wants, and then notes what it was given.

    Attributes:
        is_asked_for: Set as its loading begins.
        may_load: Set it to let the loading end.
    """

    def __init__(self) -> None:
        self.is_asked_for = threading.Event()
        self.may_load = threading.Event()
        self.waiting: Sequence[socket.socket] | None = None
        self._is_over = threading.Event()

    def make(self, *_: object) -> SlowServer:
        """Load it."""
        self.is_asked_for.set()
        assert self.may_load.wait(DEADLINE_S)
        return self

    def run(self, sockets: list[socket.socket], waiting: Sequence[socket.socket]) -> None:
        """Serve."""
        self.waiting = waiting
        assert self._is_over.wait(DEADLINE_S)
        for connection in waiting:
            connection.close()

    def given(self) -> int | None:
        """How many connections it was given; None before it serves."""
        return None if self.waiting is None else len(self.waiting)

    def stop(self) -> None:
        """End."""
        self._is_over.set()

    def wake(self) -> None:
        """See `Serving`: nothing is due."""

    def abandon(self) -> None:
        """Nothing is held."""


class Place:
    """A listener on a socket of its own."""

    def __init__(self, path: Path) -> None:
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(str(path))
        bound.listen(64)
        self.path = path
        self.problems: list[str] = []
        agent: Any = SimpleNamespace(
            problems=self.problems,
            chores=[],
            settings=SimpleNamespace(node=False, job_dir=""),
            prune=lambda: None,
            refresh_card=lambda: None,
            write_card=lambda: None,
        )
        self.server = SlowServer()
        self.listener = Listener(agent, [bound], self.server.make, lambda: None)
        self.listener.start()

    def send(self, request: bytes) -> socket.socket:
        """A connection that has sent something."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(DEADLINE_S)
        try:
            connection.connect(str(self.path))
            connection.sendall(request)
        except OSError:
            connection.close()
            raise
        return connection


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """One whose server waits to be let load."""
    made = Place(tmp_path / "sock")
    yield made
    made.server.may_load.set()
    made.listener.stop()


def test_a_ping_is_answered_while_the_server_loads(place: Place) -> None:
    """However long that takes; who asks more meanwhile is handed over to the server."""
    first = place.send(QUESTION)
    assert place.server.is_asked_for.wait(DEADLINE_S)
    second = place.send(QUESTION)
    for _ in range(3):
        with place.send(PING) as ping:
            assert b'"pid"' in ping.recv(1000)
    assert place.server.given() is None
    place.server.may_load.set()
    wait_until(lambda: place.server.given() is not None, "the server")
    assert place.server.given() == 2
    assert place.problems == []
    for connection in (first, second):
        connection.close()


def test_few_connections_are_held_while_the_server_loads(place: Place) -> None:
    """The descriptors are the program's: the rest waits in the kernel's queue, and is not lost."""
    connections = [place.send(QUESTION) for _ in range(30)]
    assert place.server.is_asked_for.wait(DEADLINE_S)
    wait_until(lambda: len(place.listener._waiting) == 8, "eight connections")
    place.server.may_load.set()
    wait_until(lambda: place.server.given() is not None, "the server")
    assert place.server.given() == 8
    for connection in connections:
        connection.close()


def test_it_can_be_stopped_while_the_server_loads(place: Place) -> None:
    """The thread ends, and the server with it as soon as it is there."""
    with place.send(QUESTION):
        assert place.server.is_asked_for.wait(DEADLINE_S)
        stopping = threading.Thread(target=place.listener.stop)
        stopping.start()
        place.server.may_load.set()
        stopping.join(DEADLINE_S)
        assert not stopping.is_alive()
    with pytest.raises(ConnectionError):
        place.send(PING)
