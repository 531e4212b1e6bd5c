"""The tables of where memory is: storages of tensors, categories, activations, segments."""

from __future__ import annotations

from .columns import STEP
from .records import Table, choice, count, flag, number, seconds, size, text

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

_MOMENT = choice(
    "moment",
    MOMENTS,
    "`now`: at the end of a step, or as things are where none ends; `before_backward`: as the"
    " next step's first backward pass begins, with all activations.",
)
_STEP = count("step", "The step in progress then.")
_DEVICE = text("device", "Where it lies, such as `cpu` or `cuda:0`.")
_CATEGORY = choice(
    "category",
    CATEGORIES,
    "By its holder: `parameters`: registered by a module or stepped by an optimizer;"
    " `gradients`: their `.grad`; `optimizer_state`; `buffers`: registered by a module;"
    " `inputs`: from a data loader, into a root module, or held by a dataset; `activations`:"
    " saved by autograd; `temporary`: other variables of running functions; `other`: the rest"
    " that Python knows.",
)
_MODULE = text(
    "module",
    "Its module, by its name in its root: the one that registered the parameter (also of its"
    " gradient and optimizer state), or in whose call the activation was saved.",
)

TENSORS = Table(
    name="tensors",
    kind="live",
    doc="Every storage that tensors hold, once, at its full size; tied weights and views"
    " share one. The training is held for a moment at the end of a step, and as the next"
    " backward pass begins. Of so many tensors of category `other` that they would hold it for"
    " much longer than half a second, the oldest are left out, and a note counts them. Tensors"
    " without memory (`meta`) are not shown.",
    columns=(
        _MOMENT,
        _STEP,
        _DEVICE,
        _CATEGORY,
        _MODULE,
        text(
            "name",
            "The module's name for it (`weight`), with the key of optimizer state"
            " (`weight.exp_avg`).",
        ),
        text("dtype", "The type of the tensor that decides the category."),
        text("shape", "That tensor's sizes, such as `1000,128`."),
        size("bytes", "The whole storage, not the view of it."),
        flag("requires_grad", "Whether that tensor requires gradients."),
        count("tensors", "How many tensors over it Python holds; 0 if only autograd holds it."),
        count("tensor_id", "The `id()` of a live tensor over it."),
        count("address", "Where the storage begins."),
        count(
            "age_steps",
            "How many steps ago it came; 0: in the step in progress. Seen by `leak`,"
            " recordings of allocations and `before_backward`.",
        ),
        text(
            "frame",
            "The line of the program that made it, as `file:line function`; seen by a"
            " recording of allocations (`memory --record on`).",
        ),
    ),
)

MEMORY_CATEGORIES = Table(
    name="memory_categories",
    kind="live",
    doc="python.tensors added up by category, exactly.",
    columns=(
        _MOMENT,
        _STEP,
        _DEVICE,
        _CATEGORY,
        size("bytes", "What its storages take."),
        number("share", "The part of all storages on that device, from 0 to 1."),
        count("storages", "How many there are."),
        size(
            "quantized_bytes",
            "What those of numbers of at most eight bits take, masks of booleans excepted.",
        ),
        count(
            "quantized_numbers",
            "How many numbers those hold; in 16 bits each would take two bytes.",
        ),
        size(
            "adapter_bytes",
            "Its bytes of adapters, such as LoRA: parameters trained in a model most of which"
            " is not, their gradients and optimizer state.",
        ),
        text("largest", "The three largest of at least 1 MiB, by name and size."),
        seconds("held", "How long the training was held for the look."),
    ),
)

ACTIVATIONS = Table(
    name="activations",
    kind="live",
    doc="What autograd has saved as the backward pass of the next step begins, by the module"
    " in whose call it was saved first; without parameters and inputs.",
    columns=(
        STEP._replace(bits=64),
        _MODULE._replace(
            doc="The innermost module in whose call it was saved; NULL outside of any, such"
            " as in the loss."
        ),
        _DEVICE,
        size("bytes", "What its storages take."),
        count("tensors", "How many storages there are."),
    ),
)

PINNED = "pinned"
"""What the column `pool` of python.memory_segments says of memory of the host."""

MEMORY_SEGMENTS = Table(
    name="memory_segments",
    kind="live",
    doc="The segments that an accelerator's allocator has reserved, and one row for what torch has"
    " pinned of the host's memory. Managed memory and that of libraries is not torch's.",
    columns=(
        _DEVICE,
        text("pool", "`small` or `large`, by the blocks in it; `pinned`: all pinned host memory."),
        count("stream", "The stream that it belongs to."),
        count("address", "Where it begins."),
        size("reserved_bytes", "All of it."),
        size(
            "allocated_bytes",
            "What of it tensors have now; of pinned memory NULL before torch 2.13, which does not"
            " count what is given back.",
        ),
        size("pending_bytes", "Given back by tensors, but a stream may still be using it."),
        size("free_bytes", "What can be handed out; NULL where `allocated_bytes` is."),
        size("largest_free_bytes", "The largest free block in it: a larger tensor does not fit."),
        size("rounding_bytes", "What allocated blocks take beyond what was asked for."),
        count("blocks", "Its blocks, free ones included."),
        flag("expandable", "Whether it can grow."),
        text(
            "graph_pool",
            "The pool of a CUDA graph that it belongs to, such as `0:3`; NULL for the shared one.",
        ),
    ),
)

MEMORY_TABLES = frozenset({TENSORS.name, MEMORY_CATEGORIES.name, ACTIVATIONS.name})
"""Those for which the training's next step is waited for."""
