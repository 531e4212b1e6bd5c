"""Whom this process connects to, for tests of who is asked through others."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from probing.cluster.job.rank_sets import rank_set

T = TypeVar("T")


class Connections:
    """Which of some addresses this process connects to, told by the interpreter.

    Args:
        addresses: Each ``host:port``, by rank.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        split = [address.rpartition(":") for address in addresses]
        self._ranks = {(host, int(port)): rank for rank, (host, _, port) in enumerate(split)}
        self._made: list[int] | None = None
        sys.addaudithook(self._hear)  # stays until the end

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and self._made is not None:
            rank = self._ranks.get(arguments[1][:2])
            self._made += [rank] if rank is not None else []

    def of(self, work: Callable[[], T]) -> tuple[T, str]:
        """What some work gives, and whom it connected to."""
        given, made = self.counted(work)
        return given, rank_set(made)

    def counted(self, work: Callable[[], T]) -> tuple[T, Counter[int]]:
        """What some work gives, and how often it connected to whom."""
        made: list[int] = []
        self._made = made
        try:
            return work(), Counter(made)
        finally:
            self._made = None
