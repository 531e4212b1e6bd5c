"""Asks the ranks of a job for what should be the same on all of them.

Rules of this file: parameters are looked at by each rank at the end of the same step, one that is
far enough ahead for all to hear of it in time; where one of them does not, of a later one. A rank
that cannot tell one kind of facts still tells the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ProbingError
from ...tables import ENVIRONMENT, PARAMETER_CHECKSUMS
from ..job.outcomes import Outcome
from .differences import PARAMETER, Fact, RankFacts
from .naming import Rank
from .same_models import OF_MODELS, Owners, owners_of

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.common import LiveRows
    from .question import Asking

_PACE = "SELECT step, duration FROM python.steps ORDER BY seq DESC LIMIT 6"
_LEADS_S = (1.0, 4.0, 16.0)
"""How long all ranks may need to hear of the step, beside the time that they needed just now.

The longer ones where a rank heard of it too late, on a machine that has more to do than it can.
"""
_OF_A_RANK = ".batches"
"""How the names of what each rank has a number of its own end."""
_UNNAMED = frozenset({"job"})
"""Settings that need not be the same."""


class Told(NamedTuple):
    """What one rank has told.

    Attributes:
        notes: Sentences about it.
    """

    facts: RankFacts
    notes: tuple[str, ...]


class _Seen(NamedTuple):
    """What one rank has answered.

    Attributes:
        facts: What is no checksum.
        rows: Those of python.parameter_checksums.
    """

    rank: Rank
    facts: tuple[Fact, ...]
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


class _Appointment(NamedTuple):
    """The step at whose end all ranks look.

    Attributes:
        wait_s: How long a rank may wait for it.
    """

    step: int | None
    wait_s: float

    @property
    def table(self) -> str:
        """What a rank is asked for."""
        return PARAMETER_CHECKSUMS.name + ("" if self.step is None else f"@{self.step}")


def gather_facts(
    asking: Asking, *, with_parameters: bool = True
) -> tuple[tuple[Told, ...], tuple[Outcome[Any], ...]]:
    """What every member tells that can be asked.

    Args:
        with_parameters: Whether parameters are looked at, for which each rank holds its training.
    """
    until = time.monotonic() + asking.timeout_s
    for lead_s in _LEADS_S:
        meet = _appoint(asking, lead_s) if with_parameters else None
        outcomes = _ask(asking, meet)
        seen = [outcome.value for outcome in outcomes if outcome.value is not None]
        left_s = until - time.monotonic()
        if meet is None or not _is_missed(meet, seen) or left_s < asking.timeout_s / 2:
            break
        asking = replace(asking, timeout_s=left_s)
    owners = owners_of([one.rows for one in seen])
    return tuple(map(_told, seen, owners)), outcomes


def _ask(asking: Asking, meet: _Appointment | None) -> tuple[Outcome[_Seen], ...]:
    """What each member answers."""
    names = asking.names
    return asking.ask(
        lambda process, member: _tell(process, names[member], meet),
        is_together=True,
    )


def _appoint(asking: Asking, lead_s: float) -> _Appointment:
    """A step that no rank has begun yet, and that all come to soon.

    Args:
        lead_s: How long all may need to hear of it, beside the time that they need for an answer.
    """
    outcomes = asking.ask(
        lambda process, _: process.query(_PACE).to_pylist(),
        is_together=True,
    )
    answers = [outcome.value for outcome in outcomes if outcome.value]
    steps = [rows[0]["step"] for rows in answers]
    times = [row["duration"] for rows in answers for row in rows if row["duration"] is not None]
    limit_s = max(1.0, 0.8 * asking.timeout_s)
    if not steps or not times:
        return _Appointment(None, limit_s)
    lead_s += 2 * max(outcome.seconds for outcome in outcomes if outcome.value)
    step_s = median(times)
    ahead = 1 + math.ceil(min(lead_s, limit_s / 2) / step_s)
    return _Appointment(max(steps) + ahead, limit_s)


def _is_missed(meet: _Appointment, seen: Sequence[_Seen]) -> bool:
    """Whether a rank heard of the step too late, and so looked after another than the others."""
    steps = {one.rows[0]["step"] for one in seen if one.rows} - {None}
    return meet.step is not None and len(steps) > 1 and max(steps) > meet.step


def _tell(process: Process, rank: Rank, meet: _Appointment | None) -> _Seen:
    """What one process tells.

    Raises:
        ProbingError: It tells nothing at all.
    """
    notes: list[str] = []
    errors: list[ProbingError] = []

    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except ProbingError as error:
            notes.append(error.message)
            errors.append(error)
            return None

    surroundings = ask(lambda: process.live(ENVIRONMENT.name))
    settings = ask(process.settings)
    seen = ask(lambda: _parameters(process, meet)) if meet is not None else None
    if surroundings is None and settings is None and seen is None:
        raise errors[0]
    facts = (*_environment(surroundings), *_settings(settings))
    rows = tuple([{**row, "kind": row["kind"] or PARAMETER} for row in _dicts(seen)])
    notes += [seen.note] if seen is not None and seen.note and not rows else []
    return _Seen(rank, facts, rows, tuple(dict.fromkeys(notes)))


def _told(seen: _Seen, owner_of: Owners) -> Told:
    facts = RankFacts(
        rank=seen.rank,
        facts=(*seen.facts, *_checksums(seen.rows, owner_of)),
        step=seen.rows[0]["step"] if seen.rows else None,
        sharded=sum(row["is_shard"] for row in seen.rows),
    )
    return Told(facts, seen.notes)


def _parameters(process: Process, meet: _Appointment) -> LiveRows:
    return process.live(meet.table, wait_s=meet.wait_s)


def _environment(rows: LiveRows | None) -> list[Fact]:
    return [
        Fact(
            kind="place" if row["name"].endswith(_OF_A_RANK) else row["kind"],
            name=row["name"],
            value=row["fingerprint"] if row["is_secret"] else row["value"],
            is_secret=row["is_secret"],
        )
        for row in _dicts(rows)
    ]


def _settings(answer: Any) -> list[Fact]:
    if answer is None:
        return []
    return [
        Fact(kind="setting", name=setting.name, value=setting.value)
        for setting in answer.settings
        if setting.name not in _UNNAMED
    ]


def _checksums(rows: Sequence[dict[str, Any]], owner_of: Owners) -> list[Fact]:
    """The parameters that are whole on this rank, and what else was looked at with them."""
    facts = []
    for row in rows:
        if row["checksum"] is None or row["is_shard"]:
            continue
        is_of_model = row["kind"] in OF_MODELS
        about = f"{row['shape']} {row['dtype']}" if is_of_model else ""
        owner = owner_of[row["root"], row["model"]] if is_of_model else row["root"]
        if owner is None:
            continue
        between = "." if is_of_model else " "
        facts.append(
            Fact(
                kind=row["kind"],
                name=f"{owner}{between}{row['parameter']}" if owner else row["parameter"],
                value=f"{about} {row['checksum']}".strip(),
                about=about,
            )
        )
    return facts


def _dicts(rows: LiveRows | None) -> list[dict[str, Any]]:
    """The rows of an answer, where there is one."""
    return [] if rows is None else rows.dicts()
