"""What the last rows of memory on record, and the cgroups, say of a process that left no word.

Rules of this file: operator's side; what follows from it, `endings` judges. Pure functions but for
`cgroup_now`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..linux.cgroup import NEAR_LIMIT, find_cgroup
from ..messages.frozen import dataclass
from ..units import size

KILLED_BY_OOM = "Killed by the kernel OOM killer"
"""How the sentences begin that say so."""
MACHINE_FULL = "the machine's memory ran out"
NEAR_FULL = 0.95
"""A machine whose memory was at this part of all was close to it."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupNow:
    """The cgroup that this terminal is in.

    Attributes:
        limit: Bytes; None without one.
        kills: Processes that the kernel has killed in it.
    """

    limit: int | None
    kills: int


def has_killed_none(rows: Sequence[Row], cgroup: CgroupNow | None) -> bool:
    """Whether this terminal's cgroup has the same limit, and counts no kill since."""
    last = next((row for row in rows if row.get("cgroup_oom_kills") is not None), None)
    if last is None or cgroup is None or cgroup.limit is None:
        return False
    return cgroup.limit == last.get("cgroup_limit_bytes") and (
        cgroup.kills == last["cgroup_oom_kills"]
    )


def near_limit(rows: Sequence[Row]) -> str:
    """What its cgroup held, where that was close to the limit.

    Files that are cached do not count, for they go first, where the record tells what they took.
    """
    last = next((row for row in rows if row.get("cgroup_bytes") is not None), None)
    if last is None or not last.get("cgroup_limit_bytes"):
        return ""
    limit, cached = last["cgroup_limit_bytes"], last.get("cgroup_cache_bytes")
    used = last["cgroup_bytes"] - (cached or 0)
    if used < NEAR_LIMIT * limit:
        return ""
    files = "with cached files" if cached is None else "without cached files"
    return (
        f"{size(used)} of {size(limit)}, {files}, in the last row on record (step {last['step']},"
        f" {last['phase']})"
    )


def counted(rows: Sequence[Row], cgroup: CgroupNow | None) -> list[str]:
    """The kernel counts the processes that it has killed in a cgroup."""
    counts = [row for row in rows if row.get("cgroup_oom_kills") is not None]
    if not counts:
        return []
    first, last = counts[-1]["cgroup_oom_kills"], counts[0]["cgroup_oom_kills"]
    found = []
    if last > first:
        found.append(
            f"The kernel was killing processes of its cgroup: {last - first} in its last rows."
        )
    limit = counts[0].get("cgroup_limit_bytes")
    if cgroup is None or limit is None or cgroup.limit != limit:
        return found
    if cgroup.kills > last:
        found.append(
            f"The kernel has killed {cgroup.kills - last} more since the last row on record, if its"
            " cgroup is that of this terminal, which has the same limit."
        )
    return found


def near_full(rows: Sequence[Row]) -> list[str]:
    """The machine itself had hardly any memory left."""
    last = next((row for row in rows if row.get("node_used_bytes") is not None), None)
    if last is None or not last.get("node_total_bytes"):
        return []
    used, total = last["node_used_bytes"], last["node_total_bytes"]
    if used < NEAR_FULL * total:
        return []
    return [
        f"{KILLED_BY_OOM}: {MACHINE_FULL}. {size(used)} of"
        f" {size(total)} were in use in the last row on record."
    ]


def cgroup_now() -> CgroupNow | None:
    """The cgroup of this very process; None where it cannot be read."""
    paths = find_cgroup("self")
    kills = paths.oom_kills() if paths is not None else None
    return (
        CgroupNow(limit=paths.limit_bytes(), kills=kills) if paths and kills is not None else None
    )
