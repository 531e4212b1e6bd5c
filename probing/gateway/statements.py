"""Statements that clients have prepared, and the values that they have put in.

Rules of this file: one that is closed, or was not used while a thousand others were, is forgotten;
whoever asks for it is told to prepare it again.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Any

from ..errors import BadRequest, SqlError
from ..sql.quoting import with_values

_MOST = 1000


class Statements:
    """Those of all clients, by a handle that nobody guesses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[str, tuple[Any, ...] | None]] = OrderedDict()

    def add(self, sql: str) -> bytes:
        """Its handle."""
        handle = secrets.token_hex(16).encode()
        with self._lock:
            self._known[handle] = (sql, None)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        return handle

    def bind(self, handle: bytes, rows: list[tuple[Any, ...]]) -> None:
        """Put values in.

        Raises:
            BadRequest: It is not known.
            SqlError: There is not one row of values.
        """
        if len(rows) != 1:
            raise SqlError(f"{len(rows)} rows of values came, and a statement is run for one")
        with self._lock:
            sql, _ = self._one(handle)
            self._known[handle] = (sql, rows[0])

    def text(self, handle: bytes) -> str:
        """The statement with its values.

        Raises:
            BadRequest: It is not known.
            SqlError: It has other marks than values.
        """
        with self._lock:
            sql, values = self._one(handle)
        return with_values(sql, values or ())

    def forget(self, handle: bytes) -> None:
        """Close it; one that is not there is closed."""
        with self._lock:
            self._known.pop(handle, None)

    def _one(self, handle: bytes) -> tuple[str, tuple[Any, ...] | None]:
        if handle not in self._known:
            raise BadRequest("there is no such prepared statement any more: prepare it again")
        self._known.move_to_end(handle)
        return self._known[handle]
