"""The tables of where memory is: storages of tensors, categories, activations, segments.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import STEP
from .records import Column, Table

CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer_state",
    "buffers",
    "activations",
    "inputs",
    "temporary",
    "other",
)
"""What a storage is used for. One that is used for several things counts as the first of these,
except that an input which is also saved for the backward pass stays an input."""
MOMENTS = ("now", "before_backward")
"""At the end of a step, or wherever a process stands that makes none; and as the next backward pass
begins, when the forward pass has saved all that it saves."""

_MOMENT = Column(
    name="moment",
    type="enum",
    values=MOMENTS,
    doc="`now`: at the end of a step, or where the process stands if it makes none;"
    " `before_backward`: as the first backward pass of the next step begins, when all activations"
    " are there.",
)
_STEP = Column(
    name="step", type="int64", doc="The step in progress then; NULL where none is counted."
)
_DEVICE = Column(name="device", type="text", doc="Where it lies, such as `cpu` or `cuda:0`.")
_CATEGORY = Column(
    name="category",
    type="enum",
    values=CATEGORIES,
    doc="What it is used for, by who holds it: `parameters` are registered by a module or stepped"
    " by an optimizer, `gradients` their `.grad`, `optimizer_state` what an optimizer keeps of"
    " them; `buffers` are registered by a module; `inputs` came out of a data loader or into a"
    " root module, or are held by a dataset; `activations` are what autograd saved for the backward"
    " pass; `temporary` what else functions under way hold in variables; `other` all the rest that"
    " Python knows of.",
)
_MODULE = Column(
    name="module",
    type="text",
    doc="The module that it belongs to, by its name in its root: of a parameter, its gradient and"
    " its optimizer state the one that registered it, of an activation the one in whose call it was"
    " saved; NULL where there is none.",
)

TENSORS = Table(
    name="tensors",
    kind="live",
    doc="Every storage of memory that tensors hold, once, at its full size, whatever part of it"
    " views show: tied weights and aliases share one. The training is held for a moment at the end"
    " of a step, and looked into again as the next backward pass begins. Not shown are tensors"
    " without memory, such as those of the device `meta`.",
    columns=(
        _MOMENT,
        _STEP,
        _DEVICE,
        _CATEGORY,
        _MODULE,
        Column(
            name="name",
            type="text",
            doc="What the module calls it (`weight`), of optimizer state with its key"
            " (`weight.exp_avg`); NULL where it has no name.",
        ),
        Column(name="dtype", type="text", doc="The type of the tensor that decides the category."),
        Column(name="shape", type="text", doc="That tensor's sizes, such as `1000,128`."),
        Column(
            name="bytes", type="int64", unit="bytes", doc="The whole storage, not the view of it."
        ),
        Column(name="requires_grad", type="bool", doc="Whether that tensor requires gradients."),
        Column(
            name="tensors",
            type="int64",
            doc="How many tensors over it Python holds; 0 of one that only autograd holds.",
        ),
        Column(
            name="tensor_id",
            type="int64",
            doc="The `id()` of a tensor over it while that lives, of that one where Python has it;"
            " NULL of one that only autograd holds.",
        ),
        Column(name="address", type="int64", doc="Where the storage begins."),
        Column(
            name="age_steps",
            type="int64",
            doc="Before how many steps it came; 0: in the step in progress. NULL where it was not"
            " seen to come: the steps that `leak` watches, and those of a recording of allocations,"
            " make it known, and `before_backward` shows what came since the step began.",
        ),
        Column(
            name="frame",
            type="text",
            doc="The line of the program that made it, as `file:line function`. NULL where no"
            " recording of allocations (`memory --record on`) has seen it made.",
        ),
    ),
)

MEMORY_CATEGORIES = Table(
    name="memory_categories",
    kind="live",
    doc="python.tensors added up by what it is used for. Of each moment and device, the categories"
    " sum to exactly what all storages take.",
    columns=(
        _MOMENT,
        _STEP,
        _DEVICE,
        _CATEGORY,
        Column(name="bytes", type="int64", unit="bytes", doc="What its storages take."),
        Column(
            name="share",
            type="float64",
            doc="The part of all storages on that device, from 0 to 1.",
        ),
        Column(name="storages", type="int64", doc="How many there are."),
        Column(
            name="quantized_bytes",
            type="int64",
            unit="bytes",
            doc="What those of numbers of at most eight bits take; a mask of booleans is none.",
        ),
        Column(
            name="quantized_numbers",
            type="int64",
            doc="How many numbers those are, however they are packed: in 16 bits each would take"
            " two bytes.",
        ),
        Column(
            name="adapter_bytes",
            type="int64",
            unit="bytes",
            doc="What of it belongs to adapters, such as LoRA: parameters that are trained in a"
            " model most of which is not, their gradients, and what optimizers keep of them.",
        ),
        Column(
            name="largest",
            type="text",
            doc="The three largest of at least 1 MiB, by name and size; NULL without any.",
        ),
        Column(
            name="held",
            type="float64",
            unit="s",
            doc="How long the training stood still to be looked at.",
        ),
    ),
)

ACTIVATIONS = Table(
    name="activations",
    kind="live",
    doc="What autograd has saved for the backward pass of the next step, as it begins, by the"
    " module in whose call it was saved first. Parameters and inputs are not counted.",
    columns=(
        STEP._replace(bits=64),
        _MODULE._replace(
            doc="The innermost module in whose call it was saved; NULL outside of any, such as in"
            " the computation of the loss."
        ),
        _DEVICE,
        Column(name="bytes", type="int64", unit="bytes", doc="What its storages take."),
        Column(name="tensors", type="int64", doc="How many storages there are."),
    ),
)

MEMORY_SEGMENTS = Table(
    name="memory_segments",
    kind="live",
    doc="The segments that the allocator of an accelerator has reserved of its device. None without"
    " an accelerator in use.",
    columns=(
        _DEVICE,
        Column(name="pool", type="text", doc="`small` or `large`, by the blocks in it."),
        Column(name="stream", type="int64", doc="The stream that it belongs to."),
        Column(name="address", type="int64", doc="Where it begins."),
        Column(name="reserved_bytes", type="int64", unit="bytes", doc="All of it."),
        Column(
            name="allocated_bytes", type="int64", unit="bytes", doc="What of it tensors have now."
        ),
        Column(
            name="pending_bytes",
            type="int64",
            unit="bytes",
            doc="What tensors have given back that a stream may still be using.",
        ),
        Column(name="free_bytes", type="int64", unit="bytes", doc="What can be handed out."),
        Column(
            name="largest_free_bytes",
            type="int64",
            unit="bytes",
            doc="The largest free block in it: a larger tensor does not fit.",
        ),
        Column(
            name="rounding_bytes",
            type="int64",
            unit="bytes",
            doc="What allocated blocks take beyond what was asked for; NULL where that is not"
            " told.",
        ),
        Column(name="blocks", type="int64", doc="Its blocks, free ones included."),
        Column(name="expandable", type="bool", doc="Whether it can grow."),
        Column(
            name="graph_pool",
            type="text",
            doc="The pool of a CUDA graph that it belongs to, such as `0:3`; NULL for the one that"
            " all others share.",
        ),
    ),
)

MEMORY_TABLES = frozenset({TENSORS.name, MEMORY_CATEGORIES.name, ACTIVATIONS.name})
"""Those for which the training's next step is waited for."""
