"""Where an agent listens, and whom it is told to.

Rules of this file: no socket, and no library of one: every command loads it.
"""

from __future__ import annotations

from pathlib import Path

from ..messages import rank_paths
from ..messages.frozen import dataclass
from .trust import NOTHING_SAID, Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an agent listens: a unix socket's path, or host and port.

    Attributes:
        tls: Whether the connection is encrypted.
        token: Sent with every TCP request.
        trust: Whose certificate is believed.
        key: Which process of a node server's is meant, by the name of its run folder.
    """

    path: Path | None = None
    host: str = ""
    port: int = 0
    tls: bool = False
    token: str | None = None
    key: str = ""
    trust: Trust = NOTHING_SAID

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def path_of(self, path: str) -> str:
        """Where a route is to be found there."""
        return rank_paths.path_of(self.key, path) if self.key else path

    def check_peer(self, number: str) -> None:
        """Judge who is at the other end.

        Raises:
            Unproven: A token would be sent to another machine unencrypted.
        """
        if self.token and not self.tls:
            self.trust.check_plain(str(self), number)
