"""The tables, each declared once.

Rules of this package: what a table holds, in which unit and with which meaning, is
said here and nowhere else. The ring layout, the SQL catalog, ``probing tables``,
the reference page and the tests are derived from these records. No I/O, no clock,
nothing imported but the standard library.

A *recorded* table lives in a ring file: fixed-width rows that outlive the process.
A *live* table is computed by the agent (or from outside the process) when asked.
"""

from __future__ import annotations

from .actions import ACTION_STATES, ACTIONS
from .allocations import ALLOC_ACTIONS, ALLOC_BLOCKS, ALLOC_EVENTS
from .changes import CHANGE_STATES, CHANGES
from .checkpoints import CHECKPOINTS, SAVED_BY
from .collectives import COLLECTIVES, FLIGHT_RECORDER, PROCESS_GROUPS
from .comparing import ENVIRONMENT, ENVIRONMENT_KINDS, PARAMETER_CHECKSUMS
from .data import BATCHES, DATALOADERS
from .device_times import DEVICE_TIMES
from .devices import DEVICES
from .evals import EVAL_STATES, EVALS
from .kernels import KERNEL_CATEGORIES, KERNELS
from .leaks import HOLDERS, LEAK_GROWTH, LEAK_STEPS, LEAKS
from .marks import METRICS, SPANS
from .memory import HOST_MEMORY, MEMORY, MEMORY_PHASES, PROCESS_ROLES
from .model import MODELS, MODULES, OBSERVED_COLUMNS, OPTIMIZERS
from .nan_steps import NAN_OUTCOMES, NAN_STEPS
from .numbers import GRADIENTS, NUMERIC_KINDS, NUMERIC_STAGES, NUMERICS, ROLES
from .ooms import OOM_BOUNDS, OOM_CATEGORIES, OOM_GROWTH, OOM_PHASES, OOMS
from .own import OVERHEAD, SOURCE_STATES, SOURCES
from .records import OWN_SCHEMA, SCHEMA, Column, ColumnType, Scaled, Table, TableKind
from .referrers import REFERRERS
from .samples import SAMPLES
from .stacks import BACKTRACE, STACK_SOURCES, THREADS
from .stalls import STALL_STATES, STALLS
from .step_parts import EVALUATIONS, OPTIMIZER_STEPS
from .tensors import (
    ACTIVATIONS,
    CATEGORIES,
    MEMORY_CATEGORIES,
    MEMORY_SEGMENTS,
    MEMORY_TABLES,
    MOMENTS,
    TENSORS,
)
from .training import MICRO_BATCHES, STAGES, STEP_PHASES, STEPS, TORCH_TRACE

__all__ = [
    "ACTIONS",
    "ACTION_STATES",
    "ACTIVATIONS",
    "ALLOC_ACTIONS",
    "ALLOC_BLOCKS",
    "ALLOC_EVENTS",
    "BACKTRACE",
    "BATCHES",
    "CATEGORIES",
    "CHANGES",
    "CHANGE_STATES",
    "CHECKPOINTS",
    "COLLECTIVES",
    "DATALOADERS",
    "DEVICES",
    "DEVICE_TIMES",
    "ENVIRONMENT",
    "ENVIRONMENT_KINDS",
    "EVALS",
    "EVALUATIONS",
    "EVAL_STATES",
    "FLIGHT_RECORDER",
    "GRADIENTS",
    "HOLDERS",
    "HOST_MEMORY",
    "KERNELS",
    "KERNEL_CATEGORIES",
    "LEAKS",
    "LEAK_GROWTH",
    "LEAK_STEPS",
    "MEMORY",
    "MEMORY_CATEGORIES",
    "MEMORY_PHASES",
    "MEMORY_SEGMENTS",
    "MEMORY_TABLES",
    "METRICS",
    "MICRO_BATCHES",
    "MODELS",
    "MODULES",
    "MOMENTS",
    "NAN_OUTCOMES",
    "NAN_STEPS",
    "NUMERICS",
    "NUMERIC_KINDS",
    "NUMERIC_STAGES",
    "OBSERVED_COLUMNS",
    "OOMS",
    "OOM_BOUNDS",
    "OOM_CATEGORIES",
    "OOM_GROWTH",
    "OOM_PHASES",
    "OPTIMIZERS",
    "OPTIMIZER_STEPS",
    "OVERHEAD",
    "OWN_SCHEMA",
    "PARAMETER_CHECKSUMS",
    "PROCESS_GROUPS",
    "PROCESS_ROLES",
    "RECORDED_TABLES",
    "REFERRERS",
    "ROLES",
    "SAMPLES",
    "SAVED_BY",
    "SCHEMA",
    "SOURCES",
    "SOURCE_STATES",
    "SPANS",
    "STACK_SOURCES",
    "STAGES",
    "STALLS",
    "STALL_STATES",
    "STEPS",
    "STEP_PHASES",
    "TABLES",
    "TABLES_BY_NAME",
    "TENSORS",
    "THREADS",
    "TORCH_TRACE",
    "Column",
    "ColumnType",
    "Scaled",
    "Table",
    "TableKind",
]

TABLES: tuple[Table, ...] = (
    TORCH_TRACE,
    STEPS,
    MICRO_BATCHES,
    OPTIMIZER_STEPS,
    EVALUATIONS,
    BATCHES,
    SPANS,
    METRICS,
    CHECKPOINTS,
    GRADIENTS,
    NUMERICS,
    NAN_STEPS,
    SAMPLES,
    BACKTRACE,
    THREADS,
    MODELS,
    MODULES,
    OPTIMIZERS,
    DATALOADERS,
    KERNELS,
    OVERHEAD,
    SOURCES,
    MEMORY,
    HOST_MEMORY,
    TENSORS,
    MEMORY_CATEGORIES,
    ACTIVATIONS,
    MEMORY_SEGMENTS,
    OOMS,
    OOM_CATEGORIES,
    OOM_GROWTH,
    ALLOC_EVENTS,
    ALLOC_BLOCKS,
    LEAKS,
    LEAK_STEPS,
    LEAK_GROWTH,
    STALLS,
    COLLECTIVES,
    PROCESS_GROUPS,
    REFERRERS,
    FLIGHT_RECORDER,
    ENVIRONMENT,
    PARAMETER_CHECKSUMS,
    EVALS,
    DEVICE_TIMES,
    DEVICES,
    ACTIONS,
    CHANGES,
)

TABLES_BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}

RECORDED_TABLES: tuple[Table, ...] = tuple(t for t in TABLES if t.kind == "recorded")
