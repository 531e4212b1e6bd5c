"""The rings of what every training records, by the names of their tables.

Rules of this file: makes and closes them; what they hold, the sources know. A ring that only some
trainings need (collectives, device times) is made by its source with the first row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...ring.space import share_space
from ...ring.writer import RingWriter
from ...rundir.folders import ProcessFolder
from ...settings import Settings
from ...tables import (
    BATCHES,
    EVALUATIONS,
    GRADIENTS,
    MEMORY,
    METRICS,
    MICRO_BATCHES,
    NUMERICS,
    OOM_CATEGORIES,
    OOM_GROWTH,
    OOMS,
    OPTIMIZER_STEPS,
    OVERHEAD,
    RECORDED_TABLES,
    SAMPLES,
    SPANS,
    STEPS,
    TORCH_TRACE,
    Table,
)

_NUMERICS_ROWS = 1024
_EVALUATION_ROWS = 1024
_OOM_ROWS, _OOM_CATEGORY_ROWS, _OOM_GROWTH_ROWS = 128, 1024, 2048


class Rings(NamedTuple):
    """One ring of each table, in the order in which they are made: the first ones find room.

    Attributes:
        by_name: Those of tables whose source is found by their name.
    """

    torch_trace: RingWriter
    steps: RingWriter
    micro_batches: RingWriter
    batches: RingWriter
    overhead: RingWriter
    spans: RingWriter
    metrics: RingWriter
    gradients: RingWriter
    numerics: RingWriter
    memory: RingWriter
    samples: RingWriter
    ooms: RingWriter
    oom_categories: RingWriter
    oom_growth: RingWriter
    optimizer_steps: RingWriter
    evaluations: RingWriter
    by_name: Mapping[str, RingWriter]

    def all(self) -> tuple[RingWriter, ...]:
        """Every ring."""
        return (*self[:-1], *self.by_name.values())


def make_rings(folder: ProcessFolder, settings: Settings) -> Rings:
    """Make the rings in the folder of a process.

    Raises:
        RingError: There is no space for them.
    """
    wanted = tuple(_rows_of(settings))
    share_space(folder.path, wanted)
    made = {
        table.name: RingWriter(folder.ring(table.name), table, rows, in_c=settings.native)
        for table, rows in wanted
    }
    named = {name: made.pop(name) for name in Rings._fields if name in made}
    return Rings(**named, by_name=made)


def _rows_of(settings: Settings) -> Iterator[tuple[Table, int]]:
    """Each table, and the least number of rows that its ring holds."""
    yield TORCH_TRACE, settings.trace_rows
    yield STEPS, settings.step_rows
    yield MICRO_BATCHES, settings.step_rows
    yield BATCHES, settings.batch_rows
    yield OVERHEAD, settings.step_rows
    yield SPANS, settings.mark_rows
    yield METRICS, settings.mark_rows
    yield GRADIENTS, settings.gradient_rows
    yield NUMERICS, _NUMERICS_ROWS
    yield MEMORY, settings.memory_rows
    yield SAMPLES, settings.sample_rows
    yield OOMS, _OOM_ROWS
    yield OOM_CATEGORIES, _OOM_CATEGORY_ROWS
    yield OOM_GROWTH, _OOM_GROWTH_ROWS
    yield OPTIMIZER_STEPS, settings.step_rows
    yield EVALUATIONS, _EVALUATION_ROWS
    yield from ((table, table.rows) for table in RECORDED_TABLES if table.rows is not None)
