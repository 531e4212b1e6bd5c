"""What the tables of scripts and plugins need of the agent.

Rules of this file: a type only.
"""

from __future__ import annotations

from typing import Any, Protocol

from ...ring.writer import Names, RingWriter
from ...rundir.folders import ProcessFolder
from ...settings import Settings
from ...tables import Table


class Host(Protocol):
    """An agent.

    Attributes:
        problems: What could not be done, one sentence each.
        training: What is recorded of torch.
    """

    settings: Settings
    folder: ProcessFolder
    problems: list[str]
    training: Any

    def names(self) -> Names:
        """The names that rows refer to; says where records may be, and how large."""

    def make_ring(self, table: Table, rows: int) -> RingWriter:
        """A ring in the run folder.

        Raises:
            RingError: There is no space for it.
        """

    def write_card(self) -> None:
        """Put what has changed on the card."""
