"""The columns that several tables have.

Rules of this file: a column stands here when it means the same in every table that has it.
"""

from __future__ import annotations

from .records import Column, Scaled

STEP = Column(
    name="step",
    type="int64",
    bits=32,
    doc="The training step: grows by one each time the optimizer has stepped; in a process that"
    " never steps an optimizer, each time the root module has been called.",
)
SEQ = Column(
    name="seq",
    type="int64",
    doc="The row's number in this table since the process started, counted from 1.",
)
ROOT = Column(name="root", type="text", doc="The class of the root module it belongs to.")
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
START_NS = Column(name="start_ns", type="time", unit="ns", doc="When it started, since the epoch.")
DURATION_NS = Column(
    name="duration_ns",
    type="int64",
    unit="ns",
    closing=True,
    doc="`duration` as the exact integer.",
)
ALLOCATED_BYTES = Column(
    name="allocated_bytes",
    type="int64",
    unit="bytes",
    closing=True,
    doc="Memory in use as it ended: what the accelerator's allocator has handed out; in a"
    " process that uses none, the resident set. Sampled every few milliseconds, not at each row.",
)
THREAD = Column(
    name="thread_id",
    type="int64",
    bits=32,
    doc="The thread it ran in, by its number in the kernel.",
)
FAILED = Column(
    name="failed",
    type="bool",
    doc="Whether it ended by an exception; NULL while it is still running.",
)


def seconds(name: str, doc: str) -> Column:
    """A column of seconds that are known as the row is completed."""
    return Column(name=name, type="float64", unit="s", closing=True, doc=doc)
