"""The table of what modules take on the device.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import MODEL, ROOT, SEQ, START_NS, STEP, THREAD, seconds
from .records import Column, Table

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
        Column(name="module", type="text", doc="The module's path from its root."),
        Column(
            name="stage",
            type="enum",
            values=DEVICE_STAGES,
            doc="`forward`, `backward`, or `replay` of a CUDA graph.",
        ),
        seconds(
            "device_s",
            "From the first to the last of its work on the device's own queue, with what the device"
            " did there meanwhile besides, and where it had nothing to do.",
        ),
        Column(name="class", type="text", doc="The class of the module."),
        ROOT,
        MODEL,
        Column(name="depth", type="int64", bits=8, doc="How many module calls it is nested in."),
        THREAD,
        START_NS._replace(doc="When the host called it, since the epoch."),
        SEQ,
    ),
)
