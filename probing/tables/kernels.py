"""The table of the last profile.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Column, Table

KERNEL_CATEGORIES = ("gemm", "attention", "communication", "memory", "other")
"""The kinds of work that operators and kernels do."""

KERNELS = Table(
    name="kernels",
    kind="live",
    doc="What the steps of the last `profile` were spent on: one row per kernel of the accelerator"
    " and one per operator. Computed from the file of that profile, without the process; no rows"
    " before the first profile.",
    columns=(
        Column(name="name", type="text", doc="The operator's or kernel's name, as torch has it."),
        Column(
            name="kind",
            type="enum",
            values=("operator", "kernel"),
            doc="`operator`: run by the CPU, and what launches kernels; `kernel`: run by the"
            " accelerator, copies included.",
        ),
        Column(
            name="category",
            type="enum",
            values=KERNEL_CATEGORIES,
            doc="By the name: `gemm` (matrix products and convolutions), `attention`,"
            " `communication`, `memory` (copies, fills, allocation) or `other`.",
        ),
        Column(name="calls", type="int64", doc="How often it ran."),
        Column(
            name="self_cpu_ns",
            type="int64",
            unit="ns",
            doc="Time on the CPU without that of the operators it called; NULL for a kernel.",
        ),
        Column(
            name="self_device_ns",
            type="int64",
            unit="ns",
            doc="Time on the accelerator; NULL for an operator.",
        ),
        Column(
            name="share",
            type="float64",
            doc="Its part of the time of all rows of its kind, from 0 to 1.",
        ),
        Column(name="first_step", type="int64", doc="The first step of the profile."),
        Column(name="last_step", type="int64", doc="The last step of the profile."),
        Column(name="start_ns", type="time", unit="ns", doc="When the profile began."),
    ),
)
