"""Which runs there are in a history.

Rules of this file: one statement over `probing.processes`, so that whoever asks by SQL gets no
other answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..messages.frozen import dataclass
from ..postmortem.endings import ORDERLY, UNTOLD, WORDLESS
from ..postmortem.terminations import ASKED
from .query import History

_SQL = f"""
SELECT run, project, any_value(job) AS job, any_value(attempt) AS attempt,
  min(started_ns) AS started_ns, count(*) AS processes, max(world_size) AS world_size,
  list_sort(list(DISTINCT host)) AS hosts, max(last_step) AS last_step,
  CAST(count(*) FILTER (NOT has_ended) AS BIGINT) AS running,
  coalesce(
    min(ending) FILTER (NOT regexp_matches(ending, '^{ORDERLY}|^{WORDLESS}|^{ASKED}|^{UNTOLD}')),
    min(ending) FILTER (starts_with(ending, '{WORDLESS}')),
    min(ending) FILTER (NOT starts_with(ending, '{ORDERLY}')),
    min(ending)
  ) AS ending,
  arg_min(command, coalesce(rank, 0)) AS command, any_value(git_commit) AS git_commit,
  any_value(git_branch) AS git_branch, any_value(torch) AS torch, any_value(devices) AS devices,
  max(exported_ns) AS exported_ns
FROM probing.processes GROUP BY run, project ORDER BY started_ns DESC, run, project
"""  # noqa: S608 - words of ours
"""One ending of many: one that tells why, as a launcher kills the others; else a killed rank's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: all ranks of one start of a job, or one process without ranks.

    Attributes:
        processes: How many of its processes were exported.
        world_size: How many ranks it has; None where no launcher said so.
        last_step: The newest step of any of them.
        running: How many had not ended when they were exported.
        ending: How they ended; of several, that of one that failed, else of one that was killed.
        exported_ns: When any of them was last exported.
    """

    run: str
    project: str
    job: str | None
    attempt: int
    started_ns: int
    processes: int
    world_size: int | None
    hosts: tuple[str, ...]
    last_step: int | None
    running: int
    ending: str | None
    command: str
    git_commit: str | None
    git_branch: str | None
    torch: str | None
    devices: str | None
    exported_ns: int


def runs_of(history: History, *, timeout_s: float, most: int | None = None) -> Iterator[Run]:
    """The runs, the newest first.

    Args:
        most: How many at most; None for all.

    Raises:
        ProbingError: They cannot be read.
    """
    sql = _SQL if most is None else f"{_SQL} LIMIT {most}"
    with history.query(sql, timeout_s=timeout_s) as answer:
        for row in answer.to_pylist():
            yield Run(**{**row, "hosts": tuple(row["hosts"])})
