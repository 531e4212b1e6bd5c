"""The tables, each declared once.

Rules of this package: what a table holds, in which unit and with which meaning, is
said here and nowhere else. The ring layout, the SQL catalog, ``probing tables``,
the reference page and the tests are derived from these records. No clock, nothing
imported but the standard library; files are looked at only to find the tables.

A *recorded* table lives in a ring file: fixed-width rows that outlive the process.
A *live* table is computed by the agent (or from outside the process) when asked.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator

from .actions import *
from .allocations import *
from .changes import *
from .checkpoints import *
from .collectives import *
from .comparing import *
from .data import *
from .device_times import *
from .devices import *
from .evals import *
from .kernels import *
from .leaks import *
from .marks import *
from .memory import *
from .model import *
from .nan_steps import *
from .numbers import *
from .ooms import *
from .own import *
from .records import (
    OWN_SCHEMA as OWN_SCHEMA,
    SCHEMA as SCHEMA,
    Column as Column,
    ColumnType as ColumnType,
    Scaled as Scaled,
    Table as Table,
    TableKind as TableKind,
)
from .referrers import *
from .samples import *
from .shown_warnings import *
from .stacks import *
from .stalls import *
from .step_parts import *
from .task_errors import *
from .tensors import *
from .training import *


def _declared() -> Iterator[Table]:
    """The tables that the modules beside this one declare."""
    for file in sorted(os.listdir(os.path.dirname(__file__))):
        if file.endswith(".py") and file != os.path.basename(__file__):
            module = f"{__name__}.{file.removesuffix('.py')}"
            found = sys.modules.get(module) or importlib.import_module(module)
            yield from (value for value in vars(found).values() if isinstance(value, Table))


_FIRST = (
    "torch_trace steps micro_batches optimizer_steps evaluations batches spans metrics "
    "checkpoints gradients numerics nan_steps samples backtrace threads models modules "
    "optimizers dataloaders kernels overhead sources memory host_memory tensors "
    "memory_categories activations memory_segments ooms oom_categories oom_growth alloc_events "
    "alloc_blocks leaks leak_steps leak_growth stalls collectives process_groups referrers "
    "flight_recorder environment parameter_checksums evals device_times devices device_checks "
    "actions changes"
)
_ALL = {table.name: table for table in _declared()}

TABLES: tuple[Table, ...] = tuple([_ALL[name] for name in dict.fromkeys((*_FIRST.split(), *_ALL))])
"""All tables: those that people ask most come first, in that order."""

TABLES_BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}

RECORDED_TABLES: tuple[Table, ...] = tuple([t for t in TABLES if t.kind == "recorded"])
