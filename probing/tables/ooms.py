"""The tables of out-of-memory errors.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import MODEL, SEQ, STEP, THREAD
from .records import Table, choice, count, moment, seconds, size, text

OOM_PHASES = ("data", "forward", "loss", "backward", "optimizer", "other")
"""What was being done when memory ran out."""

OOM_BOUNDS = ("device", "address_space", "machine")
"""What the memory of a device, or of the host, is bounded by."""


OOMS = Table(
    name="ooms",
    kind="recorded",
    doc="One row per out-of-memory error, written before it reaches the script. CUDA: all."
    " CPU: errors that leave a module, the backward pass or the optimizer's step;"
    " elsewhere those that end the process or a thread.",
    columns=(
        STEP,
        count("micro_batch", "The micro-batch of the step, from 0.", closing=True),
        choice(
            "phase",
            OOM_PHASES,
            "`forward`, `backward` (recomputed activations included), `optimizer`; `data`:"
            " while a batch was made; `loss`: after the model's call, outside of any module;"
            " `other`: elsewhere.",
            closing=True,
        ),
        text("device", "`cpu`, or a device such as `cuda:0`.", closing=True),
        size(
            "requested_bytes",
            "What was asked for.",
            closing=True,
        ),
        size("free_bytes", "What was free of `total_bytes`.", closing=True),
        size(
            "total_bytes",
            "What there is in all, within the limit that `bounded_by` names.",
            closing=True,
        ),
        choice(
            "bounded_by",
            OOM_BOUNDS,
            "`device`: the device's memory. On the host `address_space` (`ulimit -v`), where"
            " limited; else `machine`.",
            closing=True,
        ),
        size(
            "allocated_bytes",
            "What the device's allocator had handed out.",
            closing=True,
        ),
        size("reserved_bytes", "What it had taken from the device.", closing=True),
        size("resident_bytes", "The process's resident set.", closing=True),
        text(
            "module",
            "The innermost module being called, or whose backward pass was under way.",
            closing=True,
        ),
        text("root", "The class of its root module.", closing=True),
        MODEL._replace(closing=True),
        text("batch", "Names and shapes of the root module's inputs.", closing=True),
        count("samples", "Its first dimension.", closing=True),
        text("error", "The class of the error and its first line.", closing=True),
        THREAD,
        moment("time_ns", "When, since the epoch."),
        SEQ,
    ),
)

_OOM = count("oom", "`seq` of its row in python.ooms.")
_WHEN = moment("time_ns", "When it was written.")

OOM_CATEGORIES = Table(
    name="oom_categories",
    kind="recorded",
    doc="The tensors alive at an error of python.ooms: one row per category and device,"
    " largest first; none without memory to look.",
    columns=(
        _OOM,
        text("category", "As in python.tensors.", closing=True),
        text("device", "Where they were.", closing=True),
        size("bytes", "Bytes of their storages, each counted once.", closing=True),
        count("tensors", "How many storages.", closing=True),
        text("dtype", "The type of most of these bytes.", closing=True),
        _WHEN,
        SEQ,
    ),
)

OOM_GROWTH = Table(
    name="oom_growth",
    kind="recorded",
    doc="The last 50 calls before an error of python.ooms in which memory grew, newest first:"
    " since the previous sample, taken every few milliseconds.",
    columns=(
        _OOM,
        STEP._replace(doc="The training step of the call."),
        text("module", "The module or optimizer.", closing=True),
        text("stage", "As in python.torch_trace.", closing=True),
        size("growth_bytes", "By how much the memory in use had grown.", closing=True),
        size("allocated_bytes", "The memory in use after that.", closing=True),
        seconds("age_s", "How long before the error the call had ended.", closing=True),
        _WHEN,
        SEQ,
    ),
)
