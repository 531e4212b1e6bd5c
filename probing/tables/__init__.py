"""The tables, each declared once.

Rules of this package: what a table holds, in which unit and with which meaning, is
said here and nowhere else. The ring layout, the SQL catalog, ``probing tables``,
the reference page and the tests are derived from these records. No I/O, no clock,
nothing imported but the standard library.

A *recorded* table lives in a ring file: fixed-width rows that outlive the process.
A *live* table is computed by the agent (or from outside the process) when asked.
"""

from __future__ import annotations

from .allocations import ALLOC_ACTIONS, ALLOC_BLOCKS, ALLOC_EVENTS
from .data import BATCHES, DATALOADERS
from .kernels import KERNEL_CATEGORIES, KERNELS
from .leaks import HOLDERS, LEAK_STEPS, LEAKS
from .marks import METRICS, SPANS
from .memory import HOST_MEMORY, MEMORY, MEMORY_PHASES, PROCESS_ROLES
from .model import MODELS, MODULES, OBSERVED_COLUMNS, OPTIMIZERS
from .numbers import GRADIENTS, NUMERIC_KINDS, NUMERIC_STAGES, NUMERICS, ROLES
from .ooms import OOM_BOUNDS, OOM_CATEGORIES, OOM_GROWTH, OOM_PHASES, OOMS
from .own import OVERHEAD, SOURCE_STATES, SOURCES
from .records import OWN_SCHEMA, SCHEMA, Column, ColumnType, Scaled, Table, TableKind
from .samples import SAMPLES
from .stacks import BACKTRACE, STACK_SOURCES, THREADS
from .tensors import (
    ACTIVATIONS,
    CATEGORIES,
    MEMORY_CATEGORIES,
    MEMORY_SEGMENTS,
    MEMORY_TABLES,
    MOMENTS,
    TENSORS,
)
from .training import MICRO_BATCHES, STAGES, STEPS, TORCH_TRACE

__all__ = [
    "ACTIVATIONS",
    "ALLOC_ACTIONS",
    "ALLOC_BLOCKS",
    "ALLOC_EVENTS",
    "BACKTRACE",
    "BATCHES",
    "CATEGORIES",
    "DATALOADERS",
    "GRADIENTS",
    "HOLDERS",
    "HOST_MEMORY",
    "KERNELS",
    "KERNEL_CATEGORIES",
    "LEAKS",
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
    "OVERHEAD",
    "OWN_SCHEMA",
    "PROCESS_ROLES",
    "RECORDED_TABLES",
    "ROLES",
    "SAMPLES",
    "SCHEMA",
    "SOURCES",
    "SOURCE_STATES",
    "SPANS",
    "STACK_SOURCES",
    "STAGES",
    "STEPS",
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
    BATCHES,
    SPANS,
    METRICS,
    GRADIENTS,
    NUMERICS,
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
)

TABLES_BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}

RECORDED_TABLES: tuple[Table, ...] = tuple(t for t in TABLES if t.kind == "recorded")
