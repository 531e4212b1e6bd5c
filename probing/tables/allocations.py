"""The tables of the last recording of allocations."""

from __future__ import annotations

from .records import Table, choice, count, moment, size, text
from .tensors import CATEGORIES

ALLOC_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
)
"""What an allocator does, in torch's words."""

_ADDRESS = count("address", "Where the memory begins.")
_BYTES = size("bytes", "How much.")
_DEVICE = text("device", "`cpu`, or the accelerator, such as `cuda:0`.")
_STREAM = count("stream", "The accelerator's stream that it is for; NULL on the CPU.")
_MODULE = text(
    "module",
    "The module that was running, or whose work the backward pass undoes; of parameters,"
    " state and gradients the holder.",
)
_CATEGORY = choice(
    "category",
    CATEGORIES,
    "What it was for, by its holder at the end of a step; what was made before a backward"
    " pass and freed in it is an activation.",
)
_FRAME = text(
    "frame",
    "The innermost frame of the program's own code, as `file:line function`; NULL for what is"
    " older than the recording.",
)
_FRAMES = text("frames", "The whole stack, one frame a line, innermost first.")

ALLOC_EVENTS = Table(
    name="alloc_events",
    kind="live",
    doc="What the allocator did during the last recording (`memory --record`, `memory"
    " --snapshot`), the newest 100 000 events.",
    columns=(
        count("step", "The training step."),
        moment("time_ns", "When, since the epoch."),
        choice(
            "action",
            ALLOC_ACTIONS,
            "Memory is handed out (`alloc`), given back (`free_requested`, then"
            " `free_completed`), taken from or returned to the driver (`segment_...`), or out"
            " (`oom`).",
        ),
        _ADDRESS,
        _BYTES,
        _DEVICE,
        _STREAM,
        _MODULE,
        _FRAME,
        _FRAMES,
        _CATEGORY,
    ),
)

ALLOC_BLOCKS = Table(
    name="alloc_blocks",
    kind="live",
    doc="The memory in use when the last recording of allocations ended, older memory"
    " included: one row per block.",
    columns=(
        _ADDRESS,
        _BYTES,
        _DEVICE,
        _STREAM,
        _CATEGORY,
        _MODULE,
        count("step", "The training step in which it was made; NULL if older than the recording."),
        count("age_steps", "How many steps ago that was; NULL if older than the recording."),
        moment("time_ns", "When it was made; NULL if older than the recording."),
        _FRAME,
        _FRAMES,
    ),
)
