"""How ranks are written down: in the path of a node server, and as an endpoint of a job."""

from __future__ import annotations

import re

_RANKS = "/v1/ranks/"
_OF_JOB = "/rank:"
_KEY = re.compile(re.escape(_RANKS) + r"(\d+-\d+(?:-\d+)?)")


def endpoint_at(url: str, key: str) -> str:
    """What a process is called.

    Args:
        url: Its node server.
        key: The name of its run folder.
    """
    return f"{url}{_RANKS}{key}"


def split(endpoint: str) -> tuple[str, str]:
    """The node server's URL and the key; the latter empty where it is not behind one."""
    url, _, key = endpoint.partition(_RANKS)
    return url, key


def key_in(path: str) -> str:
    """The key in a URL's path which is that of a process; empty in any other."""
    found = _KEY.fullmatch(path)
    return found[1] if found else ""


def path_of(key: str, path: str) -> str:
    """Where a route of a process is to be found, by where an agent has it.

    Args:
        key: Its key, or ``{key}`` for all.
    """
    return f"{_RANKS}{key}{path.removeprefix('/v1')}"


def route_in(key: str, path: str) -> str:
    """Where its agent has the route: what `path_of` has made longer."""
    return f"/v1{path.removeprefix(_RANKS + key)}"


def of_job(rank: int, job: str | None) -> str:
    """The endpoint of a rank, of whatever else runs beside its job."""
    return f"job:{job}{_OF_JOB}{rank}" if job else f"rank:{rank}"


def of_ranks(job: str | None) -> str:
    """The endpoint of all ranks of a job."""
    return f"job:{job}" if job else "all"


def job_and_ranks(endpoint: str) -> tuple[str | None, str] | None:
    """The job, if it is named, and the text of the ranks; None where it names no ranks.

    That is ``rank:0-3`` and ``job:NAME/rank:0-3``.
    """
    if endpoint.startswith("rank:"):
        return None, endpoint.removeprefix("rank:")
    job, found, ranks = endpoint.removeprefix("job:").rpartition(_OF_JOB)
    return (job, ranks) if found and job and endpoint.startswith("job:") else None
