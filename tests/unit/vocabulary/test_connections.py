"""How long connections may take, on a clock that goes as the test lets it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from probing.server.connections import LOOK_S, Connection, Connections
from probing.settings import Settings
from tests.faults import Reached

pytestmark = pytest.mark.anypython

SETTINGS = Settings(header_timeout_s=1.0, send_timeout_s=2.0, max_connections=64)
IN_TIME_S = 5.0


class Clock:
    """What of an event loop `Connections` needs: it calls back later, when the test has time go on.

    Attributes:
        now_s: The time.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, after_s: float, work: Callable[[], None]) -> object:
        """See `asyncio.AbstractEventLoop`."""
        self._due.append((self.now_s + after_s, work))
        return self._due[-1]

    def go_on(self) -> None:
        """Have the time of what is due next come."""
        self.now_s, work = self._due.pop(0)
        work()


class Transport:
    """A connection in aiohttp's hands, with so much that its client has not taken."""

    def __init__(self, own: socket.socket, unsent: int) -> None:
        self._own = own
        self._unsent = unsent

    def get_write_buffer_size(self) -> int:
        """See `asyncio.Transport`."""
        return self._unsent

    def abort(self) -> None:
        """See `asyncio.Transport`."""
        self._own.close()


class Held:
    """Connections as a server has them."""

    def __init__(self) -> None:
        self.clock = Clock()
        loop: Any = self.clock
        self.connections = Connections(loop, lambda: SETTINGS)
        self._sockets: list[socket.socket] = []

    def add(self, *, unsent: int = 0, is_at_work: bool = False) -> Connection:
        """Take one in, as the server does."""
        own, other = socket.socketpair()
        self._sockets += (own, other)
        assert self.connections.is_room_for(own)
        connection, transport = Connection(own, self.clock.now_s), Transport(own, unsent)
        connection.transport = transport  # type: ignore[assignment]
        connection.is_at_work = is_at_work
        self.connections.add(asyncio.Protocol(), connection)
        return connection

    def close(self) -> None:
        """Close all."""
        for one in self._sockets:
            one.close()


@pytest.fixture
def held() -> Iterator[Held]:
    """A server's connections, none as yet."""
    made = Held()
    yield made
    made.close()


@pytest.mark.fault("N3")
@pytest.mark.parametrize(("unsent", "limit_s"), [(0, 1.0), (1000, 2.0)], ids=["asks", "takes"])
def test_a_client_that_does_not_get_on_is_hung_up_on_in_time(
    unsent: int, limit_s: float, held: Held, fault: Reached
) -> None:
    """It sends no whole request, or takes no answer: not before its time, and at once then."""
    connection = held.add(unsent=unsent)
    while connection.is_open():
        assert held.clock.now_s < limit_s + LOOK_S
        held.clock.go_on()
    waits = "to send its request" if unsent == 0 else "to take its answer"
    most_s = limit_s + LOOK_S  # it is seen at the next look
    fault.at_most(f"a client is waited for {waits}", most_s, held.clock.now_s, "s")
    assert held.clock.now_s >= limit_s
    held.clock.go_on()
    assert len(held.connections) == 0


@pytest.mark.fault("N3")
def test_the_last_of_many_slow_senders_is_hung_up_on_in_time(held: Held, fault: Reached) -> None:
    """No more are held than may be, those at work stay, and the rest goes in one look."""
    honest = held.add(is_at_work=True)
    slow = []
    for _ in range(600):
        slow.append(held.add())
        assert len(held.connections) <= SETTINGS.max_connections
    fault.at_most("of 600 slow senders at once: held", 64, sum(c.is_open() for c in slow), "")
    while any(one.is_open() for one in slow):
        held.clock.go_on()
    fault.at_most("the last of them is hung up on", IN_TIME_S, held.clock.now_s, "s")
    assert held.clock.now_s <= SETTINGS.header_timeout_s
    assert honest.is_open()
