"""Who a process is or was, and how it ended: what is kept with its rows.

Rules of this file: reads the run folder and the kernel; nothing is asked of the process. Variables
and arguments are those that the agent has kept, secrets masked as in the command line: see
`probing.arguments`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..arguments import command_without_secrets
from ..errors import ProbingError
from ..messages.card import Card
from ..postmortem.endings import Ending, ending_of
from ..postmortem.environment import kept_environment
from ..ring import peek as ring_peek
from ..ring.arrow_tables import RecordedTable, live_to_arrow
from ..rundir.folders import ProcessFolder
from ..tables import ENVIRONMENT, MEMORY
from .settled import Moment

_MEMORY_ROWS = 200
_Names = Mapping[tuple[str, str], str | None]


def has_ended(folder: ProcessFolder) -> bool:
    """Whether a process writes no row any more, as far as can be known from here."""
    return not folder.is_alive() and not folder.may_live()


def last_step(folder: ProcessFolder) -> int | None:
    """Its newest training step."""
    row = ring_peek.last_step(folder)
    step = None if row is None else row.values.get("step")
    return None if step is None else int(step)


def environment_of(folder: ProcessFolder) -> pa.Table:
    """The rows of python.environment that are kept; none of a process that made no step."""
    kept = kept_environment(folder)
    if kept is None:
        from ..ring.arrow_tables import schema_of

        return schema_of(ENVIRONMENT).empty_table()
    return live_to_arrow(kept)


def process_row(
    folder: ProcessFolder, card: Card, process: str, moment: Moment, environment: pa.Table
) -> dict[str, Any]:
    """The row of `tables.PROCESSES`."""
    known: _Names = {
        (row["kind"], row["name"]): row["value"]
        for row in environment.select(["kind", "name", "value"]).to_pylist()
    }
    ending = _ending(folder) if moment.has_ended else None
    return {
        "process": process,
        "command": shlex.join(command_without_secrets(card.command)),
        "executable": card.executable,
        "python": card.python,
        "torch": known.get(("version", "torch")),
        "probing": card.version,
        "started_ns": card.started_ns,
        "local_rank": card.local_rank,
        "world_size": card.world_size,
        "attempt": card.attempt,
        "git_commit": known.get(("code", "git commit")),
        "git_branch": known.get(("code", "git branch")),
        "devices": known.get(("torch", "device")),
        "boot_id": card.boot_id,
        "last_step": moment.last_step,
        "has_ended": moment.has_ended,
        "ended_ns": None if ending is None else ending.ended_ns,
        "ending": None if ending is None else " ".join(ending.sentences),
        "exported_ns": moment.now_ns,
    }


def _ending(folder: ProcessFolder) -> Ending | None:
    """How it ended."""
    try:
        memory = RecordedTable(MEMORY, folder).load(None)
    except ProbingError:
        return ending_of(folder, [])
    last = memory.slice(max(0, memory.num_rows - _MEMORY_ROWS)).to_pylist()
    return ending_of(folder, last[::-1])
