"""The connections that a server holds: how many, and how long each of them may take.

Rules of this file: runs on the event loop of the server. A connection whose client does not send a
whole request, or does not take its answer, is closed. Where there are as many as there may be, the
one that has waited longest for its client makes way: whoever holds connections without asking
anything keeps nobody out. Time is counted in looks at the clock: while the training holds the
interpreter lock nobody could be served, so that is nobody's fault.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable

from aiohttp.abc import AbstractStreamWriter

from ..messages.limits import SPARE_FILES
from ..settings import Settings
from .sockets import peer_of

LOOK_S = 0.25


class Connection:
    """One connection.

    Attributes:
        peer: Who is at the other end.
        transport: Once it is in aiohttp's hands.
        since: When it began to wait for its client, or was last at work.
        waited_s: For how long it has waited, as far as anybody could have noticed.
        writer: What writes the answer to its last request; None before the first.
        unsent: Bytes of answers that its client had not taken at the last look.
        is_at_work: Whether a request of its is in hand.
        is_reading: Whether the body of a request is awaited, whose time `Admission` counts.
    """

    __slots__ = (
        "_taken",
        "is_at_work",
        "is_reading",
        "peer",
        "since",
        "socket",
        "transport",
        "unsent",
        "waited_s",
        "writer",
    )

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.socket = connection
        self.peer = peer_of(connection)
        self.transport: asyncio.Transport | None = None
        self.since = now
        self.waited_s = 0.0
        self.writer: AbstractStreamWriter | None = None
        self.unsent = 0
        self.is_at_work = False
        self.is_reading = False
        self._taken = 0

    def is_open(self) -> bool:
        """Whether it holds a descriptor."""
        return self.socket.fileno() >= 0

    def look(self) -> None:
        """Count the time, unless its client has got on since the last look."""
        self.unsent = 0 if self.transport is None else self.transport.get_write_buffer_size()
        taken = (0 if self.writer is None else self.writer.output_size) - self.unsent
        is_awaited = (self.is_at_work or self.is_reading) and not self.unsent
        has_moved = taken != self._taken or is_awaited
        self._taken = taken
        self.waited_s = 0.0 if has_moved else self.waited_s + LOOK_S

    def cut(self) -> None:
        """Close it, and forget what was to be sent."""
        if self.transport is not None:
            self.transport.abort()

    def let_go(self) -> None:
        """It is closed: have asyncio's transport refer to itself no more.

        Among its attributes are methods that are bound to it, so that only the collector could
        free it, which comes by every few hours in a process of a million objects.
        """
        own = getattr(self.transport, "__dict__", {})
        bound = [k for k, v in own.items() if getattr(v, "__self__", None) is self.transport]
        for name in bound:
            del own[name]


class Connections:
    """All connections of a server, by aiohttp's protocol object."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Callable[[], Settings]) -> None:
        self._loop = loop
        self._settings = settings
        self._uncounted: set[socket.socket] = set()  # those not yet, or no longer, in `_open`
        self._open: dict[asyncio.BaseProtocol, Connection] = {}
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._open)

    def accept(self, server: socket.socket) -> socket.socket:
        """The next connection of a listener that does not block.

        Raises:
            OSError: There is none, or no descriptor for it.
        """
        connection, _ = server.accept()
        self._uncounted.add(connection)
        return connection

    def add(self, protocol: asyncio.BaseProtocol, connection: Connection) -> None:
        """Take one in."""
        self._open[protocol] = connection
        self._uncounted.discard(connection.socket)
        if self._look is None:
            self._look = self._loop.call_later(LOOK_S, self._look_round)

    def of(self, protocol: asyncio.BaseProtocol) -> Connection | None:
        """That of a request; None where it is gone."""
        return self._open.get(protocol)

    def is_room_for(self, connection: socket.socket) -> bool:
        """Whether one more may be held; makes another one go where it must."""
        self._forget_closed()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY and connection.fileno() >= files - SPARE_FILES:
            return False  # the lowest free number is that high: the host needs the rest
        if len(self._open) < self._settings().max_connections:
            return True
        idle = [
            (one.since, protocol)
            for protocol, one in self._open.items()
            if one.transport is not None and not one.is_at_work
        ]
        if not idle:
            return False
        _, protocol = min(idle, key=lambda found: found[0])
        self._uncounted.add(self._open[protocol].socket)  # it is closed in the loop's next round
        self._open.pop(protocol).cut()
        return True

    def cut(self) -> None:
        """Close all, and forget what was to be sent; the loop closes them in its next round."""
        for connection in list(self._open.values()):
            connection.cut()

    def close(self) -> None:
        """Close all sockets without a word; runs in a forked child, too."""
        for socket_ in (*self._uncounted, *(one.socket for one in list(self._open.values()))):
            socket_.close()

    def _look_round(self) -> None:
        """Close what has waited too long; look again as long as there is anything to look at."""
        self._forget_closed()
        settings = self._settings()
        for connection in list(self._open.values()):
            connection.look()
            is_sending = connection.unsent > 0
            limit_s = settings.send_timeout_s if is_sending else settings.header_timeout_s
            if connection.waited_s >= limit_s:
                connection.cut()
        self._look = self._loop.call_later(LOOK_S, self._look_round) if self._open else None

    def _forget_closed(self) -> None:
        """Let go of those that are closed."""
        self._uncounted -= {one for one in self._uncounted if one.fileno() < 0}
        for protocol in [known for known, one in self._open.items() if not one.is_open()]:
            self._open.pop(protocol).let_go()
