"""What is asked of the record of a rank: how far it has come, and all that a verdict needs of it.

Rules of this file: statements and rows; what they mean is decided elsewhere. Rings answer in every
state. Ages are computed where the rank is, so no clock is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import ProbingError, RingError, SqlError
from ....postmortem.not_finite import LOST
from ....ring.peek import RingPeek
from ....rundir.folders import ProcessFolder
from ....sql.quoting import in_one
from ....tables import COLLECTIVES, STEPS, TORCH_TRACE
from ...device_use import NEWEST_SAMPLE, XIDS

if TYPE_CHECKING:
    from ....client.base import Process
    from ....cluster.job.members import Member

NEWEST = """
    SELECT max(start_ns) AS newest_ns, max(start_ns + coalesce(duration_ns, 0)) AS ended_ns,
           epoch_ns(now()) AS now_ns,
           (SELECT count(*) FILTER (duration_ns IS NOT NULL) FROM python.collectives) AS done
    FROM (SELECT start_ns, duration_ns FROM python.collectives
          UNION ALL SELECT start_ns, duration_ns FROM python.steps
          UNION ALL SELECT start_ns, duration_ns FROM python.torch_trace)
"""
_CALLS = """
    SELECT process_group, seq, op, shapes, dtypes, root, reduce_op, peer, is_async, caller,
           thread_id, (epoch_ns(now()) - start_ns) / 1e9 AS age_s, start_ns,
           duration_ns IS NULL AND error IS NULL AS is_open, error
    FROM python.collectives AS c
    WHERE start_ns >= coalesce((SELECT max(created_ns) FROM python.process_groups AS g
                                WHERE g.process_group = c.process_group), start_ns)
    QUALIFY row_number() OVER (PARTITION BY process_group ORDER BY start_ns DESC) <= 32
         OR (duration_ns IS NULL AND row_number() OVER (
                PARTITION BY process_group, duration_ns IS NULL ORDER BY start_ns) <= 32)
"""
"""The last of each group, and the first of those in progress: what a rank waits in is one of them,
and ten thousand ranks have room. A group that was made again counts anew, under the same name."""
_GROUPS = """
    SELECT process_group, description, backend, size, ranks FROM python.process_groups
    QUALIFY row_number() OVER (PARTITION BY process_group ORDER BY created_ns DESC) = 1
"""
_STEPS = f"""
    SELECT max(step) AS step,
           greatest(max(step) FILTER (NOT loss_finite AND step > coalesce(
               (SELECT max(step) FROM python.steps WHERE loss_finite), -1)),
               (SELECT max(step) FROM ({LOST}))) AS not_finite,
           (SELECT median(duration) FROM (SELECT duration FROM python.steps
            WHERE duration IS NOT NULL ORDER BY step DESC LIMIT 20)) AS median_step_s
    FROM python.steps
"""  # noqa: S608 - our words
_MODULES = """
    WITH trained AS (SELECT DISTINCT thread_id FROM python.torch_trace
                     WHERE stage IN ('backward', 'optimizer'))
    SELECT module, class, thread_id FROM python.torch_trace
    WHERE duration_ns IS NULL AND stage <> 'step'
      AND (thread_id IN (SELECT thread_id FROM trained) OR NOT EXISTS (FROM trained))
    ORDER BY start_ns DESC LIMIT 1
"""
"""Once threads train, the calls of others are none of the training, such as those of an actor."""
_TRAINS = """
    SELECT thread_id FROM python.torch_trace WHERE stage = 'step' ORDER BY start_ns DESC LIMIT 1
"""
"""Where no call is in progress, the thread of the last step is the one that trains."""
_EVALS = """
    SELECT eval_id, code, (epoch_ns(now()) - start_ns) / 1e9 AS age_s FROM python.evals
    WHERE duration_ns IS NULL ORDER BY start_ns LIMIT 1
"""
_PARTS = {
    "calls": _CALLS,
    "groups": _GROUPS,
    "steps": _STEPS,
    "modules": _MODULES,
    "trains": _TRAINS,
    "look": NEWEST,
    "evals": _EVALS,
    "device": NEWEST_SAMPLE,
    "xids": XIDS,
}
RECORD = in_one(_PARTS)
"""All of the record that is needed."""
_WITHOUT_DEVICE = in_one({k: sql for k, sql in _PARTS.items() if k not in {"device", "xids"}})
"""The same of an agent of an older version, which has no such table."""
Row = Mapping[str, Any]
Record = Mapping[str, Sequence[Row]]
"""The rows of each part; see `RECORD`."""
Newest = tuple[object, ...]
"""How far a record has come, to be compared with another look at it and nothing else."""
_GROWING = (COLLECTIVES.name, STEPS.name, TORCH_TRACE.name)


def newest_of(process: Process, _: Member) -> Newest | None:
    """How far the record of a rank has come; None where it cannot be read."""
    if process.folder is not None:
        return peek(process.folder)
    return newest_in(_rows(process, NEWEST, []))


def peek(folder: ProcessFolder) -> Newest | None:
    """The newest row of each table that grows with the training, without a query."""
    found: list[tuple[object, ...]] = []
    for table in _GROWING:
        try:
            with RingPeek(folder.ring(table)) as ring:
                number = ring.newest_seq()
                row = ring.row(number)
        except (OSError, RingError):
            continue
        found.append((table, number, row.values.get("duration_ns") if row else None))
    return tuple(found) or None


def newest_in(look: Sequence[Row]) -> Newest | None:
    """How far a record has come, by the rows of `NEWEST`."""
    if not look or look[0]["newest_ns"] is None:
        return None
    return look[0]["newest_ns"], look[0]["ended_ns"], look[0]["done"]


def still_s(look: Sequence[Row]) -> float | None:
    """Seconds since the newest thing on record."""
    if not look or look[0]["ended_ns"] is None:
        return None
    age: int = look[0]["now_ns"] - look[0]["ended_ns"]
    return max(0.0, age * 1e-9)


def record_of(process: Process, notes: list[str]) -> Record:
    """The rows of every part of the record; none where it cannot be read."""
    try:
        rows = process.query(RECORD).to_pylist()
    except ProbingError as error:
        if error.is_a(SqlError):
            rows = _rows(process, _WITHOUT_DEVICE, notes)
        else:
            notes.append(error.message)
            rows = []
    found = next(iter(rows), {})
    return {name: found.get(name) or [] for name in _PARTS}


def _rows(process: Process, sql: str, notes: list[str]) -> list[dict[str, Any]]:
    """The rows of a query; none, and a note, where there is no answer."""
    try:
        return process.query(sql).to_pylist()
    except ProbingError as error:
        notes.append(error.message)
        return []
