"""The columns that several tables have.

Rules of this file: a column stands here when it means the same in every table that has it.
"""

from __future__ import annotations

from .records import Column, Scaled, count, flag, moment, size, text

STEP = count(
    "step",
    "The training step: grows by one each time the optimizer has stepped; in a process that"
    " never steps an optimizer, each time the root module has been called.",
    bits=32,
)
SEQ = count("seq", "The row's number in this table since the process started, counted from 1.")
ROOT = text("root", "The class of the root module it belongs to.")
MODEL = Column(
    name="model",
    type="text",
    part_of="root",
    doc="The root module it belongs to, by its name in `python.models`: the variable that held it"
    " when it was first called, where that is known, else its class; with a number for the second"
    " of a name and those that follow.",
)
DURATION = Column(
    name="duration",
    type="float64",
    unit="s",
    scaled=Scaled(column="duration_ns", factor=1e-9),
    doc="How long it took by the monotonic clock; NULL while it is still running.",
)
ALLOCATED = Column(
    name="allocated",
    type="float64",
    unit="MiB",
    scaled=Scaled(column="allocated_bytes", factor=2.0**-20),
    doc="`allocated_bytes` in MiB.",
)
START_NS = moment("start_ns", "When it started, since the epoch.")
DURATION_NS = count("duration_ns", "`duration` as the exact integer.", unit="ns", closing=True)
ALLOCATED_BYTES = size(
    "allocated_bytes",
    "Memory in use as it ended: what the accelerator's allocator has handed out;"
    " in a process that uses none, the resident set. Sampled every few"
    " milliseconds, not at each row.",
    closing=True,
)
THREAD = count("thread_id", "The thread it ran in, by its number in the kernel.", bits=32)
FAILED = flag("failed", "Whether it ended by an exception; NULL while it is still running.")
