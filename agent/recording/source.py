"""What a source of the record is, and how one stands.

Rules of this file: cheap to import, for sources that are made on demand report, too.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ...safety.guard import Guard


class Source(Protocol):
    """Something that records.

    Attributes:
        guard: Counts its faults.
    """

    guard: Guard

    @property
    def is_on(self) -> bool:
        """Whether it records."""

    def start(self) -> None:
        """Record from now on."""

    def stop(self) -> None:
        """Record no more; `start` goes on."""

    def close(self) -> None:
        """Stop for good."""

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""


class SourceReport(NamedTuple):
    """How a source stands.

    Attributes:
        cost_s: What it has cost in the last step; None where that is not told apart.
        table: The table that it writes; None where its name tells.
    """

    source: str
    state: str
    cost_s: float | None
    faults: int
    note: str | None
    table: str | None = None
