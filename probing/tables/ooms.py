"""The tables of out-of-memory errors."""

from __future__ import annotations

from .columns import MODEL, SEQ, STEP, THREAD
from .records import Table, choice, closing, count, moment, seconds, size, text

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
        *closing(
            count("micro_batch", "The micro-batch of the step, from 0."),
            choice(
                "phase",
                OOM_PHASES,
                "`forward`, `backward` (recomputed activations included), `optimizer`; `data`:"
                " while a batch was made; `loss`: after the model's call, outside of any module;"
                " `other`: elsewhere.",
            ),
            text("device", "`cpu`, or a device such as `cuda:0`."),
            size("requested_bytes", "What was asked for."),
            size("free_bytes", "What was free of `total_bytes`."),
            size("total_bytes", "What there is in all, within the limit that `bounded_by` names."),
            choice(
                "bounded_by",
                OOM_BOUNDS,
                "`device`: the device's memory. On the host `address_space` (`ulimit -v`), where"
                " limited; else `machine`.",
            ),
            size("allocated_bytes", "What the device's allocator had handed out."),
            size("reserved_bytes", "What it had taken from the device."),
            size("resident_bytes", "The process's resident set."),
            text(
                "module", "The innermost module being called, or whose backward pass was under way."
            ),
            text("root", "The class of its root module."),
            MODEL,
            text("batch", "Names and shapes of the root module's inputs."),
            count("samples", "Its first dimension."),
            text("error", "The class of the error and its first line."),
        ),
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
        *closing(
            text("category", "As in python.tensors."),
            text("device", "Where they were."),
            size(
                "bytes",
                "Bytes of their storages, each counted once; NULL of gradients that could not be"
                " told from other tensors, as several threads train.",
            ),
            count("tensors", "How many storages; the same."),
            text("dtype", "The type of most of these bytes."),
        ),
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
        *closing(
            text("module", "The module or optimizer."),
            text("stage", "As in python.torch_trace."),
            size("growth_bytes", "By how much the memory in use had grown."),
            size("allocated_bytes", "The memory in use after that."),
            seconds("age_s", "How long before the error the call had ended."),
        ),
        _WHEN,
        SEQ,
    ),
)
