"""What one screen shows of a run of a history: all of its ranks, and of one of them the figures.

Rules of this file: asks what is kept, and nobody else. What was not measured is None, and what is
not kept has its place in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....client.recent_steps import PHASES
from ....diagnosis.runs.commits import not_committed
from ....diagnosis.runs.record import column, not_finite_in, not_finite_since
from ....history.tables import CALLS
from ....messages.frozen import dataclass
from ....sql.quoting import identifier, text_literal
from ....tables import TORCH_TRACE
from ...questions.library import OWN_TIMES
from ...questions.records import put_in

if TYPE_CHECKING:
    from ....diagnosis.runs.kept import KeptRun

Row = Mapping[str, Any]

MOST_MODULES = 20
_CURVE = 400
_LAST = 100
"""How many of the last steps modules are timed over."""
_RANKS = """
WITH s AS (SELECT rank, count(*) AS steps, min(step) AS first_step,
    median(duration) AS step_s, max(start_ns + duration_ns) AS seen_ns
  FROM python.steps WHERE duration IS NOT NULL GROUP BY rank),
m AS (SELECT rank, max(resident_bytes) AS resident_bytes,
    max(greatest(peak_bytes, allocated_bytes)) FILTER (reserved_bytes > 0) AS device_bytes,
    max(device_total_bytes) AS device_total_bytes
  FROM python.memory GROUP BY rank)
SELECT p.rank, p.host, p.pid, p.started_ns, p.last_step, p.has_ended, p.ended_ns, p.ending,
  coalesce(s.steps, 0) AS steps, s.first_step, s.step_s, s.seen_ns,
  m.resident_bytes, m.device_bytes, m.device_total_bytes
FROM probing.processes p LEFT JOIN s ON p.rank IS NOT DISTINCT FROM s.rank
  LEFT JOIN m ON p.rank IS NOT DISTINCT FROM m.rank
ORDER BY p.rank NULLS FIRST
"""
_EXPORTED = """
SELECT name, CAST(sum(exported) AS BIGINT) AS exported,
  CAST(sum(overwritten) AS BIGINT) AS overwritten, CAST(sum(damaged) AS BIGINT) AS damaged,
  CAST(sum(waiting) AS BIGINT) AS waiting
FROM probing.exports GROUP BY name ORDER BY name
"""
_MISSING = ("overwritten", "damaged", "waiting", "gone")
_WITH_CALLS = f"""
WITH last AS (SELECT step, row_number() OVER (ORDER BY seq DESC) AS place FROM python.steps
  WHERE duration IS NOT NULL ORDER BY seq DESC LIMIT {_LAST})
SELECT coalesce(min(place) FILTER (step NOT IN (
  SELECT step FROM python.torch_trace WHERE step IS NOT NULL)) - 1, count(*)) AS steps FROM last
"""  # noqa: S608 - a number of ours
"""How many of the last steps have their calls kept, all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRank:
    """One process of a run.

    Attributes:
        last_step: The newest step on record, whether it has ended or not.
        ended_ns: When it ended, where an error of its own tells.
        steps: How many ended steps are kept.
        step_s: Their median.
        seen_ns: When the last of them ended.
        resident_bytes: The most that was resident, as far as it was measured.
        device_bytes: The most that the allocator of its device had given out.
    """

    rank: int | None
    host: str
    pid: int
    started_ns: int
    last_step: int | None
    has_ended: bool
    ended_ns: int | None
    ending: str | None
    steps: int
    first_step: int | None
    step_s: float | None
    seen_ns: int | None
    resident_bytes: int | None
    device_bytes: int | None
    device_total_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long steps take, without those of the start and with a checkpoint or an evaluation.

    Attributes:
        steps: Of how many steps.
        step_s: Their median.
        phases: What a step spends in each phase, in seconds: means, which add up.
    """

    steps: int
    step_s: float
    phases: Mapping[str, float]
    tokens_per_s: float | None
    samples_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCourse:
    """How the loss went.

    Attributes:
        not_finite: In how many steps it was NaN or infinite.
        first_not_finite: The first of them.
        not_finite_since: Since which step it has not been finite any more; of a step that is not
            kept, where one that is tells. None where the last is finite.
        since_or_longer: Whether that is the first step on record, so that it may be longer.
        curve: Losses in the order of their steps; of many each is the last of its stretch.
    """

    first_step: int
    first: float
    last_step: int
    last: float
    lowest_step: int | None
    lowest: float | None
    not_finite: int
    first_not_finite: int | None
    not_finite_since: int | None
    since_or_longer: bool
    curve: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOnOneScreen:
    """One run of a history.

    Attributes:
        of_rank: Whose figures `speed`, `loss` and `modules` are.
        module_steps: Over how many of its last steps modules are timed.
        modules: The slowest by their own code: `module`, `class`, `model`, how many `models`
            have one of that name, `calls`, `own_s` of a step and which `share` of it that is.
        not_committed: Files that were not as the commit has them; None where that is not known.
        not_kept: Of each table that lacks rows: how many were overwritten, damaged, wait, or were
            exported and are gone.
        missing_ranks: Those of which nothing was exported.
    """

    run: str
    project: str
    job: str | None
    attempt: int
    command: str
    python: str
    torch: str | None
    probing: str
    devices: str | None
    git_commit: str | None
    git_branch: str | None
    not_committed: tuple[str, ...] | None
    started_ns: int
    exported_ns: int
    world_size: int | None
    missing_ranks: tuple[int, ...]
    ranks: tuple[KeptRank, ...]
    of_rank: int | None
    speed: Speed | None
    loss: LossCourse | None
    module_steps: int
    modules: tuple[Row, ...]
    not_kept: tuple[Row, ...]


def screen_of(kept: KeptRun, *, rank: int | None) -> RunOnOneScreen:
    """Read a run.

    Args:
        rank: Whose figures are shown; None for the lowest.

    Raises:
        NoSuchRun: It has no such rank.
        ProbingError: It cannot be read.
    """
    one = kept.process(kept.processes[0]["rank"] if rank is None else rank)
    record, _ = kept.read(one["rank"])
    world = one["world_size"]
    there = {row["rank"] for row in kept.processes}
    steps = int(record.query(_WITH_CALLS)[0]["steps"] or 0) if record.steps else 0
    own_times = put_in(f"{OWN_TIMES} LIMIT {MOST_MODULES}", {"steps": str(steps)})
    names = ("project", "job", "attempt", "command", "python", "torch", "probing", "devices")
    return RunOnOneScreen(
        run=kept.name,
        **{name: one[name] for name in (*names, "git_commit", "git_branch", "world_size")},
        not_committed=not_committed(record.environment),
        started_ns=min(row["started_ns"] for row in kept.processes),
        exported_ns=max(row["exported_ns"] for row in kept.processes),
        missing_ranks=tuple(sorted(set(range(world or 0)) - there)) if None not in there else (),
        ranks=tuple(KeptRank(**row) for row in kept.query(_RANKS)),
        of_rank=one["rank"],
        speed=_speed(record.settled),
        loss=_loss(record.losses),
        module_steps=steps,
        modules=tuple(record.query(own_times)) if steps else (),
        not_kept=_not_kept(kept),
    )


def _not_kept(kept: KeptRun) -> tuple[Row, ...]:
    """What each table lacks, the one first that lacks most; by the rows that are there."""
    told = kept.query(_EXPORTED)
    there = _rows_there(kept, [row["name"] for row in told if row["exported"]])
    found = [{**row, "gone": max(0, row["exported"] - there.get(row["name"], 0))} for row in told]
    lacking = {row["name"]: sum(row[what] for what in _MISSING) for row in found}
    found.sort(key=lambda row: -lacking[row["name"]])
    return tuple(row for row in found if lacking[row["name"]])


def _rows_there(kept: KeptRun, tables: Sequence[str]) -> dict[str, int]:
    """How many rows some tables have; one that stands for several counts as these."""
    if not tables:
        return {}
    counted = {TORCH_TRACE.name: f"CAST(sum(coalesce({CALLS}, 1)) AS BIGINT)"}
    counts = (
        f"SELECT {text_literal(name)} AS name, {counted.get(name, 'count(*)')} AS n"  # noqa: S608
        f" FROM {identifier(name)}"  # names, quoted
        for name in tables
    )
    return {row["name"]: row["n"] or 0 for row in kept.query(" UNION ALL ".join(counts))}


def _speed(steps: Sequence[Row]) -> Speed | None:
    """How fast it went; None where no step is kept."""
    if not steps:
        return None
    durations = column(steps, "duration")
    means = {phase: float(column(steps, f"{phase}_s").mean()) for phase in PHASES}
    told = math.fsum(seconds for phase, seconds in means.items() if phase != "other")
    means["other"] = max(0.0, float(durations.mean()) - told)
    rates = [_rate(steps, name, float(durations.sum())) for name in ("tokens", "samples")]
    return Speed(
        steps=len(steps),
        step_s=float(np.median(durations)),
        phases={phase: seconds for phase, seconds in means.items() if seconds > 0},
        tokens_per_s=rates[0],
        samples_per_s=rates[1],
    )


def _rate(steps: Sequence[Row], name: str, total_s: float) -> float | None:
    """How much of something goes through in a second; None where not each step tells."""
    amounts = column(steps, name, missing=math.nan)
    return None if np.isnan(amounts).any() or not total_s else float(amounts.sum()) / total_s


def _loss(known: Sequence[Row]) -> LossCourse | None:
    if not known:
        return None
    bad, since = not_finite_in(known), not_finite_since(known)
    finite = [row for row in known if math.isfinite(row["loss"])]
    lowest = min(finite, key=lambda row: row["loss"], default=None)
    apart = -(-len(known) // _CURVE)
    return LossCourse(
        first_step=known[0]["step"],
        first=known[0]["loss"],
        last_step=known[-1]["step"],
        last=known[-1]["loss"],
        lowest_step=None if lowest is None else lowest["step"],
        lowest=None if lowest is None else lowest["loss"],
        not_finite=len(bad),
        first_not_finite=bad[0]["step"] if bad else None,
        not_finite_since=None if since is None else since.step,
        since_or_longer=since is not None and not since.is_whole,
        curve=tuple(row["loss"] for row in known[::-1][::apart][::-1]),
    )
