"""The table of what modules take on the device."""

from __future__ import annotations

from .columns import MODEL, ROOT, SEQ, START_NS, STEP, THREAD
from .records import Table, choice, closing, count, seconds, text

DEVICE_STAGES = ("forward", "backward", "replay")

DEVICE_TIMES = Table(
    name="device_times",
    kind="recorded",
    doc="What each module call took on the accelerator, by its own clock, in as many steps as"
    " the budget allows. A step's rows come with a later one. Backward passes are those"
    " of the modules hooked in that step.",
    columns=(
        STEP,
        text("module", "The module's path from its root."),
        choice("stage", DEVICE_STAGES, "`forward`, `backward`, or `replay` of a CUDA graph."),
        *closing(
            seconds(
                "device_s",
                "From the first to the last of its work in the device's queue, other work and"
                " idle time included.",
            ),
        ),
        text("class", "The class of the module."),
        ROOT,
        MODEL,
        count("depth", "How many module calls it is nested in.", bits=8),
        THREAD,
        START_NS._replace(doc="When the host called it, since the epoch."),
        SEQ,
    ),
)
