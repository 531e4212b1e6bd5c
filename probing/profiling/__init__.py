"""What a profile of some training steps says: from the trace of torch.profiler to figures.

Rules of this package: pure functions of a trace and of rows; no socket, no torch. It runs at the
operator's side or in the SQL worker, never in the training process: to read a trace takes longer
than to make it.
"""

from __future__ import annotations

from .samples import FrameTime, Samples, frame_times, is_agents_thread, parse_folded, stacks_of
from .summary import (
    Category,
    Gap,
    Kernel,
    ModuleKernel,
    ModuleTime,
    PhaseTime,
    Profile,
    Queues,
    StepSpan,
    kernel_rows,
    phase_times,
    summarize,
)
from .trace import ModuleCall, Trace, read_trace

__all__ = [
    "Category",
    "FrameTime",
    "Gap",
    "Kernel",
    "ModuleCall",
    "ModuleKernel",
    "ModuleTime",
    "PhaseTime",
    "Profile",
    "Queues",
    "Samples",
    "StepSpan",
    "Trace",
    "frame_times",
    "is_agents_thread",
    "kernel_rows",
    "parse_folded",
    "phase_times",
    "read_trace",
    "stacks_of",
    "summarize",
]
