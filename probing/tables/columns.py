"""The columns that several tables have.

Rules of this file: a column stands here when it means the same in every table that has it.
"""

from __future__ import annotations

from .records import Column, Scaled, closing, count, flag, moment, size, text

STEP = count(
    "step",
    "The training step: grows as the optimizer steps; without an optimizer, with each call of"
    " the root module.",
    bits=32,
)
TOLD_STEP = STEP._replace(
    doc="The step in progress; or the one that has just ended, until the next has a batch, a call"
    " of a model or a backward pass."
)
SEQ = count("seq", "The row's number in this table, from 1.")
ROOT = text("root", "The class of its root module.")
MODEL = Column(
    name="model",
    type="text",
    part_of="root",
    doc="The root module's name in `python.models`.",
)
DURATION = Column(
    name="duration",
    type="float64",
    unit="s",
    scaled=Scaled(column="duration_ns", factor=1e-9),
    doc="How long it took by the monotonic clock; NULL while running.",
)
ALLOCATED = Column(
    name="allocated",
    type="float64",
    unit="MiB",
    scaled=Scaled(column="allocated_bytes", factor=2.0**-20),
    doc="`allocated_bytes` in MiB.",
)
START_NS = moment("start_ns", "When it started, since the epoch.")
DURATION_NS, ALLOCATED_BYTES = closing(
    count("duration_ns", "`duration` as the exact integer.", unit="ns"),
    size(
        "allocated_bytes",
        "Memory in use at the end: the accelerator allocator's, else the resident set. A sample of"
        " at most 250 ms before; of a step on an accelerator one of its very end, else NULL.",
    ),
)
THREAD = count("thread_id", "The kernel's number of its thread.", bits=32)
FAILED = flag("failed", "Whether it ended by an exception; NULL while running.")
