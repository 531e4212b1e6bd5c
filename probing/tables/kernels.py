"""The table of the last profile."""

from __future__ import annotations

from .records import Table, choice, count, moment, number, text

KERNEL_CATEGORIES = ("gemm", "attention", "communication", "memory", "other")
"""The kinds of work that operators and kernels do."""

KERNELS = Table(
    name="kernels",
    kind="live",
    doc="What the steps of the last `profile` were spent on: one row per kernel of the"
    " accelerator and one per operator.",
    columns=(
        text("name", "The operator's or kernel's name in torch."),
        choice(
            "kind",
            ("operator", "kernel"),
            "`operator`: run by the CPU, and what launches kernels; `kernel`: run by the"
            " accelerator, copies included.",
        ),
        choice(
            "category",
            KERNEL_CATEGORIES,
            "By the name: `gemm` (matrix products and convolutions), `attention`,"
            " `communication`, `memory` (copies, fills, allocation) or `other`.",
        ),
        count("calls", "How often it ran."),
        count("self_cpu_ns", "CPU time without that of the operators it called.", unit="ns"),
        count("self_device_ns", "Time on the accelerator; NULL for an operator.", unit="ns"),
        number("share", "Its part of the time of all rows of its kind, from 0 to 1."),
        count("first_step", "The first step of the profile."),
        count("last_step", "The last step of the profile."),
        moment("start_ns", "When the profile began."),
    ),
)
