"""The live tables: which source computes the rows of each.

Rules of this file: one entry per live table whose source is not a module of the table's name with
a function `rows`. A source that not everybody asks for is imported when it is asked.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ...errors import BadRequest
from ...messages.common import LiveRows
from ...stacks.text import rows_of
from ...tables import (
    BACKTRACE,
    DATALOADERS,
    DEVICE_CHECKS,
    ENVIRONMENT,
    FLIGHT_RECORDER,
    HOST_MEMORY,
    LEAK_GROWTH,
    LEAK_STEPS,
    LEAKS,
    MEMORY_SEGMENTS,
    MEMORY_TABLES,
    MODELS,
    MODULES,
    OPTIMIZERS,
    PARAMETER_CHECKSUMS,
    PARAMETERS,
    REFERRERS,
    SOURCES,
    TABLES_BY_NAME,
    TENSORS,
    THREADS,
    WARNINGS,
    Table,
)
from ..agent_threads import in_thread
from ..sources.stacks.look import take_backtrace
from .question import LiveQuestion

if TYPE_CHECKING:
    from ..sources.storage.memory_look import Moment


TAKES_A_WHILE = frozenset({DEVICE_CHECKS.name, PARAMETERS.name})
"""Tables that are computed in a thread of their own however they are asked.

A driver may hang, and the end of a step is waited for.
"""


def live_rows(question: LiveQuestion) -> LiveRows:
    """The rows of a live table now.

    Raises:
        BadRequest: There is no live table of that name.
    """
    own = question.own.live_rows(question.table) if question.own is not None else None
    if own is not None:
        return own
    source = LIVE_SOURCES.get(question.table) or _source_of(TABLES_BY_NAME.get(question.table))
    if source is None:
        raise BadRequest(f"there is no live table {question.table!r}")
    return source(question)


def _source_of(table: Table | None) -> Callable[[LiveQuestion], LiveRows] | None:
    """What computes the rows of a table that has no entry here: `rows` of `sources/NAME.py`."""
    if table is None or table.kind != "live":
        return None
    rows: Callable[[LiveQuestion], LiveRows]
    rows = importlib.import_module(f"...sources.{table.name}", __name__).rows
    return rows


def rows_in_thread(question: LiveQuestion) -> Future[LiveRows]:
    """As `live_rows`, in a thread of its own, since that may wait."""
    return in_thread("live", lambda: live_rows(question))


def _models(question: LiveQuestion) -> LiveRows:
    from ..sources.model.model_rows import model_rows

    return model_rows(question.training.watched())


def _modules(question: LiveQuestion) -> LiveRows:
    from .modules import observed_modules

    return observed_modules(question)


def _optimizers(question: LiveQuestion) -> LiveRows:
    from ..sources.steps.optimizer_groups import optimizer_rows

    return optimizer_rows(question.training.watched())


def _dataloaders(question: LiveQuestion) -> LiveRows:
    from ..sources.data.dataloader_rows import dataloader_rows

    return dataloader_rows(question.training.dataloaders)


def _sources(question: LiveQuestion) -> LiveRows:
    from ..recording.source_rows import source_rows

    own = question.own.reports() if question.own is not None else []
    return source_rows(question.training, own)


def _host_memory(_: LiveQuestion) -> LiveRows:
    from ...linux.host_memory import host_memory_rows

    return host_memory_rows(os.getpid())


def _memory(question: LiveQuestion) -> LiveRows:
    from ..sources.storage.memory_tables import ROWS
    from .memory import LOOKS

    table, rows = ROWS[question.table]
    seen = LOOKS.see(question)
    moments: Sequence[Moment] = seen.moments
    if table is TENSORS and (history := question.training.allocator_history()) is not None:
        from ..sources.allocation.creating_lines import with_frames

        moments = with_frames(moments, history)
    return LiveRows.of(table, rows(moments), seen.note)


def _memory_segments(question: LiveQuestion) -> LiveRows:
    from ..sources.storage.memory_tables import segments_of

    return segments_of(question.training.segments(), question.training.pinned_memory())


def _leaks(question: LiveQuestion) -> LiveRows:
    from ..sources.leaks.rows import leak_rows

    return leak_rows(question.training.leaks)


def _leak_steps(question: LiveQuestion) -> LiveRows:
    from ..sources.leaks.rows import leak_step_rows

    return leak_step_rows(question.training.leaks)


def _leak_growth(question: LiveQuestion) -> LiveRows:
    from ..sources.leaks.rows import leak_growth_rows

    return leak_growth_rows(question.training.leaks)


def _referrers(question: LiveQuestion) -> LiveRows:
    from ..sources.leaks.rows import referrer_rows

    return referrer_rows(question.training.referrers)


def _flight_recorder(_: LiveQuestion) -> LiveRows:
    from ..sources.collectives.flight_recorder import flight_recorder_rows

    return flight_recorder_rows()


def _environment(question: LiveQuestion) -> LiveRows:
    from .environment import environment_rows

    return environment_rows(question.training)


def _warnings(_: LiveQuestion) -> LiveRows:
    from .shown_warnings import warning_rows

    return warning_rows()


def _parameter_checksums(question: LiveQuestion) -> LiveRows:
    from .checksums import checksum_rows

    return checksum_rows(question)


LIVE_SOURCES: dict[str, Callable[[LiveQuestion], LiveRows]] = {
    BACKTRACE.name: lambda _: rows_of(BACKTRACE, take_backtrace()),
    THREADS.name: lambda _: rows_of(THREADS, take_backtrace()),
    MODELS.name: _models,
    MODULES.name: _modules,
    OPTIMIZERS.name: _optimizers,
    DATALOADERS.name: _dataloaders,
    SOURCES.name: _sources,
    HOST_MEMORY.name: _host_memory,
    **dict.fromkeys(MEMORY_TABLES, _memory),
    MEMORY_SEGMENTS.name: _memory_segments,
    LEAKS.name: _leaks,
    LEAK_STEPS.name: _leak_steps,
    LEAK_GROWTH.name: _leak_growth,
    REFERRERS.name: _referrers,
    FLIGHT_RECORDER.name: _flight_recorder,
    ENVIRONMENT.name: _environment,
    PARAMETER_CHECKSUMS.name: _parameter_checksums,
    WARNINGS.name: _warnings,
}
