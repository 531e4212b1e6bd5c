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

from .actions import ACTION_STATES as ACTION_STATES, ACTIONS as ACTIONS
from .allocations import (
    ALLOC_ACTIONS as ALLOC_ACTIONS,
    ALLOC_BLOCKS as ALLOC_BLOCKS,
    ALLOC_EVENTS as ALLOC_EVENTS,
)
from .changes import CHANGE_STATES as CHANGE_STATES, CHANGES as CHANGES
from .checkpoints import CHECKPOINTS as CHECKPOINTS, SAVED_BY as SAVED_BY
from .collectives import (
    COLLECTIVES as COLLECTIVES,
    FLIGHT_RECORDER as FLIGHT_RECORDER,
    PROCESS_GROUPS as PROCESS_GROUPS,
)
from .comparing import (
    ENVIRONMENT as ENVIRONMENT,
    ENVIRONMENT_KINDS as ENVIRONMENT_KINDS,
    PARAMETER_CHECKSUMS as PARAMETER_CHECKSUMS,
)
from .data import BATCHES as BATCHES, DATALOADERS as DATALOADERS
from .device_times import DEVICE_TIMES as DEVICE_TIMES
from .devices import DEVICE_CHECKS as DEVICE_CHECKS, DEVICES as DEVICES
from .evals import EVAL_STATES as EVAL_STATES, EVALS as EVALS
from .kernels import KERNEL_CATEGORIES as KERNEL_CATEGORIES, KERNELS as KERNELS
from .leaks import (
    HOLDERS as HOLDERS,
    LEAK_GROWTH as LEAK_GROWTH,
    LEAK_STEPS as LEAK_STEPS,
    LEAKS as LEAKS,
)
from .marks import METRICS as METRICS, SPANS as SPANS
from .memory import (
    HOST_MEMORY as HOST_MEMORY,
    MEMORY as MEMORY,
    MEMORY_PHASES as MEMORY_PHASES,
    PROCESS_ROLES as PROCESS_ROLES,
)
from .model import (
    HOOKS as HOOKS,
    MODELS as MODELS,
    MODULES as MODULES,
    OBSERVED_COLUMNS as OBSERVED_COLUMNS,
    OPTIMIZERS as OPTIMIZERS,
    PARAMETERS as PARAMETERS,
)
from .nan_steps import NAN_OUTCOMES as NAN_OUTCOMES, NAN_STEPS as NAN_STEPS
from .numbers import (
    GRADIENTS as GRADIENTS,
    NUMERIC_KINDS as NUMERIC_KINDS,
    NUMERIC_STAGES as NUMERIC_STAGES,
    NUMERICS as NUMERICS,
    ROLES as ROLES,
)
from .ooms import (
    OOM_BOUNDS as OOM_BOUNDS,
    OOM_CATEGORIES as OOM_CATEGORIES,
    OOM_GROWTH as OOM_GROWTH,
    OOM_PHASES as OOM_PHASES,
    OOMS as OOMS,
)
from .own import OVERHEAD as OVERHEAD, SOURCE_STATES as SOURCE_STATES, SOURCES as SOURCES
from .records import (
    OWN_SCHEMA as OWN_SCHEMA,
    SCHEMA as SCHEMA,
    Column as Column,
    ColumnType as ColumnType,
    Scaled as Scaled,
    Table as Table,
    TableKind as TableKind,
)
from .referrers import REFERRERS as REFERRERS
from .samples import SAMPLES as SAMPLES
from .shown_warnings import WARNINGS as WARNINGS
from .stacks import BACKTRACE as BACKTRACE, STACK_SOURCES as STACK_SOURCES, THREADS as THREADS
from .stalls import STALL_STATES as STALL_STATES, STALLS as STALLS
from .step_parts import EVALUATIONS as EVALUATIONS, OPTIMIZER_STEPS as OPTIMIZER_STEPS
from .task_errors import TASK_ERRORS as TASK_ERRORS
from .tensors import (
    ACTIVATIONS as ACTIVATIONS,
    CATEGORIES as CATEGORIES,
    MEMORY_CATEGORIES as MEMORY_CATEGORIES,
    MEMORY_SEGMENTS as MEMORY_SEGMENTS,
    MEMORY_TABLES as MEMORY_TABLES,
    MOMENTS as MOMENTS,
    PINNED as PINNED,
    TENSORS as TENSORS,
)
from .training import (
    MICRO_BATCHES as MICRO_BATCHES,
    STAGES as STAGES,
    STEP_PHASES as STEP_PHASES,
    STEPS as STEPS,
    TORCH_TRACE as TORCH_TRACE,
)


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
