"""Hosts out of a file, one a line, as MPI launchers and DeepSpeed take them.

    # a comment
    node1
    node2:9000
    node3 slots=8
    node[4-7]

Rules of this file: reads the file and nothing else.
"""

from __future__ import annotations

from pathlib import Path

from ....errors import BadEndpoint
from .addresses import with_port
from .hostlist import expand_hosts


def hosts_in(path: str) -> tuple[str, ...]:
    """The addresses that a hostfile lists, each once.

    Raises:
        BadEndpoint: It cannot be read, or lists none.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise BadEndpoint(f"@{path}", f"the hostfile cannot be read: {reason}") from None
    found: dict[str, None] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:  # what follows the host, such as slots=8, is for launchers
            found.update((with_port(host), None) for host in _expanded(words[0]))
    if not found:
        raise BadEndpoint(f"@{path}", "the hostfile lists no host")
    return tuple(found)


def _expanded(word: str) -> tuple[str, ...]:
    """A line's hosts; an IPv6 address in brackets is none of SLURM's lists."""
    return (word,) if word.startswith("[") else expand_hosts(word)
