"""Who serves a machine, and where: the files of a node server in the run directory.

    node.lock       held by the node server that runs
    node.json       who it is and where it listens (`NodeCard`)
    node.token      the token of its TCP requests
    node.read_token   the one that may only read
    node.log        what went wrong with it
    node.findings   what the doctor who watches for it has found (`Standing`)

Rules of this file: paths and files only; read by the resolver of endpoints and by the agents that
may have to start a node server.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..errors import BadRequest
from ..linux import process
from ..linux.foreign_files import read_file
from ..messages.codec import decode, encode
from ..messages.frozen import dataclass
from .folders import RunDirectory, put_private

_MOST_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCard:
    """A node server.

    Attributes:
        start_time: Clock ticks after boot at which its process started.
        pid_namespace: Inode of the pid namespace that `pid` belongs to; 0 where it is not told.
        listen: ``host:port``, with ``https://`` before it where that is encrypted.
        fingerprint: SHA-256 of the certificate that it shows, if it has one.
    """

    pid: int
    start_time: int
    listen: str
    fingerprint: str | None = None
    pid_namespace: int = 0


def lock_path(directory: RunDirectory) -> Path:
    """The file that the node server of a run directory keeps locked."""
    return directory.path / "node.lock"


def token_path(directory: RunDirectory) -> Path:
    """The file that holds its token."""
    return directory.path / "node.token"


def read_token_path(directory: RunDirectory) -> Path:
    """The file that holds the token that may only read."""
    return directory.path / "node.read_token"


def log_path(directory: RunDirectory) -> Path:
    """The file that one which nobody looks at writes to."""
    return directory.path / "node.log"


def findings_path(directory: RunDirectory) -> Path:
    """The file that holds which findings stand, where somebody watches for it."""
    return directory.path / "node.findings"


def read_node(directory: RunDirectory) -> NodeCard | None:
    """The node server that runs; None where none does in this pid namespace.

    That of a container which shares the run directory may listen at an address of its own.
    """
    with contextlib.suppress(OSError, BadRequest):
        card = decode(NodeCard, read_file(directory.path / "node.json", _MOST_BYTES))
        is_ours = card.pid_namespace in (0, process.pid_namespace())
        if is_ours and process.is_alive(card.pid, card.start_time):
            return card
    return None


def write_node(directory: RunDirectory, card: NodeCard) -> None:
    """Put its card in place, whole."""
    put_private(directory.path / "node.json", encode(card))


def forget_node(directory: RunDirectory) -> None:
    """Take its card away, as it ends; the token stays for the next one."""
    (directory.path / "node.json").unlink(missing_ok=True)


def read_token(path: Path) -> str | None:
    """A token of this machine's node server, from its file; None where it cannot be read."""
    try:
        return read_file(path, _MOST_BYTES).decode("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
