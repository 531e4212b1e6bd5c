"""The rows of one query, fetched by a thread of their own.

Rules of this file: the engine's thread does nothing but fetch; the main thread waits for it, so
that Ctrl-C and the alarm of `time_limit` work at any moment, also where a statement cannot be
interrupted (planning is such a phase). Batches wait in a short queue: an answer of any size passes
through little memory.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

from ...messages.frozen import dataclass
from ..target import Target

_BATCHES_IN_HAND = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begin:
    """The answer has columns."""

    schema: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """All rows were given; notes say how they were had and what is missing."""

    notes: tuple[str, ...]


class Feed:
    """One statement at one endpoint, running from the moment this is made.

    Attributes:
        endpoint: As the user wrote it.
        notes: How the answer came about, and why rows are missing if any are; known once the
            last batch was read.
    """

    def __init__(
        self,
        target: Target,
        endpoint: str,
        sql: str,
        *,
        max_rows: int | None,
        is_text: bool = False,
    ) -> None:
        """Start.

        Args:
            is_text: Whether only the texts of the values are wanted, for which plain rows will do.
        """
        self.endpoint = endpoint
        self.notes: tuple[str, ...] = ()
        self._target, self._sql, self._max_rows = target, sql, max_rows
        self._is_text = is_text
        self._items: queue.Queue[Any] = queue.Queue(_BATCHES_IN_HAND)
        threading.Thread(target=self._work, name=f"query {endpoint}", daemon=True).start()

    def schema(self) -> Any:
        """The columns, waiting for them.

        Raises:
            ProbingError: The statement failed.
        """
        return self._next().schema

    def batches(self) -> Iterator[Any]:
        """The rows, as they come; once, and after `schema`.

        Raises:
            ProbingError: The statement failed.
        """
        while not isinstance(item := self._next(), _End):
            yield item
        self.notes = item.notes

    def _work(self) -> None:
        """Fetch everything into the queue; the last item is the end or an error."""
        try:
            process = self._target.connect(self.endpoint)
            # Not for programs, which want Arrow: so it is no part of the public face.
            ask = process._query_plain if self._is_text else process.query  # noqa: SLF001
            limit_s = self._target.limit_s
            with ask(self._sql, timeout_s=limit_s, max_rows=self._max_rows) as answer:
                self._items.put(_Begin(schema=answer.schema))
                for batch in answer.batches():
                    self._items.put(batch)
                cut = [answer.truncated] if answer.truncated else []
                self._items.put(_End(notes=(*process.notes(), *cut)))
        except Exception as error:  # noqa: BLE001  raised again by the thread that reads
            self._items.put(error)

    def _next(self) -> Any:  # pyarrow has no types
        """The next item; an error is raised."""
        item = self._items.get()
        if isinstance(item, Exception):
            raise item
        return item
