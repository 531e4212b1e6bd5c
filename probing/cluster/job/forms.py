"""Which endpoints are of a form that stands for several processes.

Rules of this file: pure, and it imports next to nothing: every command asks it.
"""

from __future__ import annotations

import re

from ...messages import rank_paths

_MANY = ("job:", "slurm:", "k8s:", "dns:", "ray:", "store:", "@")
_ADDRESS = re.compile(r"https?://[^/]+/?|(\[[^\]]+\]|[^\s:/\[\]@]+):\d{1,5}")


def names_many(word: str) -> bool:
    """Whether an endpoint is one of the forms for several processes."""
    ranks = rank_paths.job_and_ranks(word)
    if ranks is not None:
        return not ranks[1].isdecimal()
    return word == "all" or word.startswith(_MANY)


def is_address(word: str) -> bool:
    """Whether an endpoint is host:port, or the URL of a server as a whole."""
    return (
        not (names_many(word) or word.startswith("rank:")) and _ADDRESS.fullmatch(word) is not None
    )
