"""A statement over the rings of a machine's ranks.

Rules of this file: it reads many rings, and runs one database.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from ...errors import BadRequest
from ...messages import common as wire
from ...messages.about.union import (
    MEMBERS_KEY,
    UnionMember,
    UnionOutcome,
    UnionOutcomes,
    UnionRequest,
)
from ...ring.peek import own_tables
from ...rundir.folders import RunDirectory
from ...sql.process_columns import concatenated
from ...tables import TABLES, Table
from ..job.membership import Member
from ..job.outcomes import Outcome, ask_all
from .budget import Budget
from .errors import UnionTooLarge
from .own_tables import merged
from .parts import Asker, Part, run_over
from .statements.leaves import Leaf

_SHARE = 0.8
_AT_ONCE = 32
"""How many rings are read at a time, all in the memory of one process."""


def answer(request: UnionRequest, directory: RunDirectory) -> pa.Table:
    """The rows, with what became of every process in the schema's metadata.

    Raises:
        ProbingError: The statement cannot be run, or its answer is too large.
    """
    if any("/" in member.key for member in request.members):
        raise BadRequest("there is no such process")
    table = _table_of(request, directory)
    members = [_member(member, directory) for member in request.members]
    outcomes = _read(table, request, members)
    read = [part.rows for outcome in outcomes for part in outcome.value or ()]
    parts = [rows for rows in read if rows is not None]  # who has not declared the table has none
    rows = run_over(table, request.sql, concatenated(table, parts), timeout_s=request.timeout_s)
    if rows.nbytes > request.max_bytes:
        raise UnionTooLarge(
            estimate=rows.nbytes, rows=rows.num_rows, ranks=len(members), budget=request.max_bytes
        )
    found = zip(request.members, outcomes, strict=True)
    told = UnionOutcomes(members=tuple(_outcome(member, outcome) for member, outcome in found))
    return rows.replace_schema_metadata({MEMBERS_KEY: wire.encode(told)})


def _table_of(request: UnionRequest, directory: RunDirectory) -> Table:
    """The table that is asked, ours or one of the processes' own.

    Raises:
        BadRequest: There is none of that name.
    """
    for table in TABLES:
        if table.full_name == request.table:
            return table
    keys = {member.key for member in request.members}
    folders = [folder for folder in directory.folders() if folder.path.name in keys]
    for table in merged(table for folder in folders for table in own_tables(folder)):
        if table.full_name == request.table:
            return table
    raise BadRequest("there is no such table")


def _read(
    table: Table, request: UnionRequest, members: list[Member]
) -> tuple[Outcome[list[Part]], ...]:
    """The rows of every ring, or of every agent for a live table."""
    leaf = Leaf(table=table, columns=request.columns)
    wait_s = request.timeout_s * _SHARE
    asker = Asker([leaf], Budget(sys.maxsize), timeout_s=wait_s)
    return ask_all(members, asker.ask, timeout_s=wait_s, at_once=_AT_ONCE)


def _member(member: UnionMember, directory: RunDirectory) -> Member:
    """A process as it is asked here, with the values that the one who asks has for it."""
    folder = directory.named(member.key)
    return Member(
        rank=member.rank,
        host=member.host,
        pid=member.pid,
        job=member.job,
        world_size=None,
        endpoint=str(directory.path / member.key if folder is None else folder.path),
    )


def _outcome(member: UnionMember, outcome: Outcome[list[Part]]) -> UnionOutcome:
    """What became of a process, as it travels."""
    error = wire.encode_error(outcome.error).decode() if outcome.error is not None else None
    notes = [*outcome.notes, *(note for part in outcome.value or () for note in part.notes)]
    return UnionOutcome(
        key=member.key,
        state=outcome.state,
        seconds=outcome.seconds,
        error=error,
        notes=tuple(dict.fromkeys(notes)),
    )
