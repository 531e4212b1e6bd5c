"""The tables of errors for want of memory.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import MODEL, SEQ, STEP, THREAD
from .records import Column, Table

OOM_PHASES = ("data", "forward", "loss", "backward", "optimizer", "other")
"""What was being done when memory ran out."""

OOM_BOUNDS = ("device", "address_space", "machine")
"""What the memory of a device, or of the host, is bounded by."""


def _bytes(name: str, doc: str) -> Column:
    """A column of bytes."""
    return Column(name=name, type="int64", unit="bytes", closing=True, doc=doc)


def _text(name: str, doc: str) -> Column:
    """A column of names and sentences."""
    return Column(name=name, type="text", closing=True, doc=doc)


OOMS = Table(
    name="ooms",
    kind="recorded",
    doc="One row per error for want of memory, written before the error reaches the script, so also"
    " where the script recovers from it. On CUDA torch's allocator tells of it; on the CPU it is"
    " seen as it leaves a module, the backward pass or the optimizer's step, and anywhere else only"
    " where it ends the process or a thread.",
    columns=(
        STEP,
        Column(
            name="micro_batch",
            type="int64",
            closing=True,
            doc="The micro-batch of the step, from 0; NULL outside of any.",
        ),
        Column(
            name="phase",
            type="enum",
            values=OOM_PHASES,
            closing=True,
            doc="`forward` and `backward` (recomputed activations are part of that), `optimizer`;"
            " `data`: while a batch was made; `loss`: after the model's call, outside of any"
            " module; `other`: anywhere else.",
        ),
        _text("device", "`cpu`, or a device such as `cuda:0`."),
        _bytes("requested_bytes", "What was asked for; NULL where the error does not say."),
        _bytes("free_bytes", "What was free of `total_bytes`."),
        _bytes("total_bytes", "What there is in all, within the limit that `bounded_by` names."),
        Column(
            name="bounded_by",
            type="enum",
            values=OOM_BOUNDS,
            closing=True,
            doc="`device`: the device's memory. For the host, `address_space`: the limit of the"
            " process's address space (`ulimit -v`), where there is one; else `machine`.",
        ),
        _bytes("allocated_bytes", "What the device's allocator had handed out; NULL on the CPU."),
        _bytes("reserved_bytes", "What it had taken from the device; NULL on the CPU."),
        _bytes("resident_bytes", "The process's resident set."),
        _text(
            "module",
            "The innermost module that was being called, or whose backward pass was under way;"
            " NULL where there was none.",
        ),
        _text("root", "The class of the root module it belongs to."),
        MODEL._replace(closing=True),
        _text("batch", "Names and shapes of what the root module was given."),
        Column(name="samples", type="int64", closing=True, doc="Its first dimension."),
        _text("error", "The class of the error and its first line."),
        THREAD,
        Column(name="time_ns", type="time", unit="ns", doc="When, since the epoch."),
        SEQ,
    ),
)

_OOM = Column(name="oom", type="int64", doc="`seq` of its row in python.ooms.")
_WHEN = Column(name="time_ns", type="time", unit="ns", doc="When it was written.")

OOM_CATEGORIES = Table(
    name="oom_categories",
    kind="recorded",
    doc="What the tensors alive at an error of python.ooms were: one row per category and device,"
    " the largest first. None where looking for them failed, for which there may be no memory.",
    columns=(
        _OOM,
        _text("category", "As in python.tensors."),
        _text("device", "Where they were."),
        _bytes("bytes", "Bytes of their storages, each counted once."),
        Column(name="tensors", type="int64", closing=True, doc="How many storages."),
        _text("dtype", "The type of numbers that most of these bytes are."),
        _WHEN,
        SEQ,
    ),
)

OOM_GROWTH = Table(
    name="oom_growth",
    kind="recorded",
    doc="The last 50 calls before an error of python.ooms by the end of which the memory in use had"
    " been seen to grow, the newest first. Memory is sampled every few milliseconds: a row has what"
    " was gained since the sample before.",
    columns=(
        _OOM,
        STEP._replace(doc="The training step of the call."),
        _text("module", "The module or optimizer."),
        _text("stage", "As in python.torch_trace."),
        _bytes("growth_bytes", "By how much the memory in use had grown."),
        _bytes("allocated_bytes", "The memory in use after that."),
        Column(
            name="age_s",
            type="float64",
            unit="s",
            closing=True,
            doc="How long before the error the call had ended.",
        ),
        _WHEN,
        SEQ,
    ),
)
