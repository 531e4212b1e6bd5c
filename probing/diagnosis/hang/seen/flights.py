"""Puts torch's flight recorder in the place of our record, where that began too late.

Rules of this file: pure functions but for `flight_of`. An agent that came after a rank had entered
its collective has no row of it; torch's own record may have. The two count differently, so that
either all ranks of a job are judged by the one or all by the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ....errors import ProbingError
from ..evidence import Call, RankEvidence

if TYPE_CHECKING:
    from ....client.base import Process
    from ....cluster.job.members import Member

_IN_COLLECTIVE = frozenset({"collective", "backward", "device"})
"""What a rank is seen to do that waits for others: for a device, too, which may be in one."""
FLIGHT = r"""
    SELECT process_group AS "group", backend_seq AS seq,
           regexp_replace(op, '^_|_base$|_into_tensor.*$', '', 'g') AS op, shapes, dtypes,
           true AS is_async, (epoch_ns(now()) - created_ns) / 1e9 AS age_s,
           created_ns AS start_ns, NOT is_over AS is_open
    FROM python.flight_recorder
    WHERE NOT is_p2p AND process_group IS NOT NULL AND backend_seq IS NOT NULL AND op IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY process_group ORDER BY record_id DESC) <= 256
    ORDER BY record_id
"""
"""As any of them may be one that is waited for later, `is_async` leaves it to the stacks to say
whether the rank waits."""


def is_blind(evidence: RankEvidence) -> bool:
    """Whether a rank waits in a collective, to judge by its stack, that is not on our record.

    Of one that moves torch is not asked: it answers with the interpreter lock held, and asks the
    device of each collective that is not over.
    """
    return (
        evidence.is_alive
        and not evidence.moved
        and evidence.doing is not None
        and evidence.doing.kind in _IN_COLLECTIVE
        and not any(call.is_open for call in evidence.calls)
    )


def flight_of(process: Process, _: Member) -> tuple[Call, ...] | None:
    """The last collectives of a rank by torch's own record; None where there is none."""
    try:
        rows = process.query(FLIGHT).to_pylist()
    except ProbingError:
        return None
    return tuple(Call(**row) for row in rows) or None


def by_flights(
    evidence: Sequence[RankEvidence], flights: Mapping[str, tuple[Call, ...]]
) -> list[RankEvidence]:
    """Judge ranks by torch's record where ours lacks what they wait for.

    Args:
        flights: By endpoint, what `flight_of` has found.

    Returns:
        The evidence as it was, unless torch has recorded a collective that is in progress on a
        rank of which we have none, and has a record of every rank that answers.
    """
    is_told = any(
        call.is_open for e in evidence if is_blind(e) for call in flights.get(e.endpoint, ())
    )
    needed = {e.endpoint for e in evidence if e.state == "answering"}
    if not is_told or needed - set(flights):
        return list(evidence)
    return [_judged_by(e, flights.get(e.endpoint, ())) for e in evidence]


def _judged_by(evidence: RankEvidence, calls: tuple[Call, ...]) -> RankEvidence:
    """A rank with these as its collectives."""
    doing = evidence.doing
    if is_blind(evidence) and doing is not None and doing.where is not None:
        line = doing.where.partition(" in ")[0]
        calls = tuple(
            dataclasses.replace(call, caller=line) if call.is_open else call for call in calls
        )
    ages = [call.age_s for call in calls if call.age_s is not None]
    known = [age for age in (evidence.still_s, min(ages, default=None)) if age is not None]
    return dataclasses.replace(
        evidence, calls=calls, still_s=min(known, default=None), is_by_flight=True
    )
