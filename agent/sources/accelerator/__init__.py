"""The seam for accelerators: all that the agent asks of one.

Rules of this package: the only place that names ``torch.cuda``, which is ROCm's as well,
``torch.xpu`` or NVML.
Nothing here waits for a device, makes a context on one, begins to use one, or raises; while a CUDA
graph is being captured nothing here calls CUDA. What it has had made by CUDA is never
destroyed in a forked child. Tests put `tests.harness.fake_cuda` below it, or another in its place.
"""

from __future__ import annotations

from .api import (
    device_kind as device_kind,
    graph_class as graph_class,
    is_in_use as is_in_use,
    out_of_memory_error as out_of_memory_error,
    profiler_activity as profiler_activity,
)
from .captures import is_capturing as is_capturing
from .cuda import (
    Accelerator as Accelerator,
    device_names as device_names,
    free_bytes as free_bytes,
    random_state as random_state,
)
from .history import CudaHistory as CudaHistory
from .nvml import DeviceSample as DeviceSample, DeviceTotals as DeviceTotals
from .owned import Owned as Owned
from .seam import (
    DeviceMemory as DeviceMemory,
    DeviceModel as DeviceModel,
    Mark as Mark,
    OutOfMemory as OutOfMemory,
    PendingNumber as PendingNumber,
    PendingNumbers as PendingNumbers,
    PinnedMemory as PinnedMemory,
)
