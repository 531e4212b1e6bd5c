"""The table of what modules take on the device.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import MODEL, ROOT, SEQ, START_NS, STEP, THREAD
from .records import Table, choice, count, seconds, text

DEVICE_STAGES = ("forward", "backward", "replay")

DEVICE_TIMES = Table(
    name="device_times",
    kind="recorded",
    doc="What each module call of some steps has taken on the accelerator, by its own clock: one"
    " step in as many as the cost allows. The rows of a step come with a later one, when the device"
    " has done with it. Empty without an accelerator. Backward passes are those of the modules that"
    " are hooked in that step.",
    columns=(
        STEP,
        text("module", "The module's path from its root."),
        choice("stage", DEVICE_STAGES, "`forward`, `backward`, or `replay` of a CUDA graph."),
        seconds(
            "device_s",
            "From the first to the last of its work on the device's own queue, with what the"
            " device did there meanwhile besides, and where it had nothing to do.",
            closing=True,
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
