"""The tables of the last recording of allocations.

Rules of this file: see the package.
"""

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
    "The module that was running, or whose work the backward pass undoes; of a parameter, its"
    " state and gradient the module that holds it. NULL where unknown.",
)
_CATEGORY = choice(
    "category",
    CATEGORIES,
    "What the memory was for, by its holder at the end of a step; what was gone by then is an"
    " activation if made before a backward pass and freed in it. Else NULL.",
)
_FRAME = text(
    "frame",
    "The innermost frame of the program's own code, as `file:line function`; NULL without a"
    " stack, as for all that is older than the recording.",
)
_FRAMES = text("frames", "The whole stack, one frame a line, the innermost first.")

ALLOC_EVENTS = Table(
    name="alloc_events",
    kind="live",
    doc="What the allocator did during the last recording (`memory --record`, `memory"
    " --snapshot`), by time, the newest 100 000. Read from that recording's file; no rows"
    " before the first.",
    columns=(
        count("step", "The training step; NULL where that is not known."),
        moment("time_ns", "When, since the epoch."),
        choice(
            "action",
            ALLOC_ACTIONS,
            "Memory is handed out (`alloc`) or given back (`free_requested`, then"
            " `free_completed`), taken from or returned to the driver (`segment_...`), or out of"
            " memory (`oom`).",
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
    doc="The memory in use when the last recording of allocations ended, older memory included:"
    " one row per block. Read as python.alloc_events is.",
    columns=(
        _ADDRESS,
        _BYTES,
        _DEVICE,
        _STREAM,
        _CATEGORY,
        _MODULE,
        count(
            "step",
            "The training step in which it was made; NULL of what is older than the recording.",
        ),
        count(
            "age_steps", "How many steps ago that was; NULL of what is older than the recording."
        ),
        moment("time_ns", "When it was made; NULL of what is older than the recording."),
        _FRAME,
        _FRAMES,
    ),
)
