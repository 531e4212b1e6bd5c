"""The seam for accelerators: all that the agent asks of one.

Rules of this package: the only place that names ``torch.cuda``, which is ROCm's as well, or NVML.
Nothing here waits for a device, makes a context on one, begins to use one, or raises; while a CUDA
graph is being captured nothing here calls CUDA. What it has had made by CUDA is never
destroyed in a forked child. Tests put `tests.harness.fake_cuda` below it, or another in its place.
"""

from __future__ import annotations

from .captures import is_capturing as is_capturing
from .cuda import KIND as KIND
from .cuda import Cuda as Cuda
from .cuda import device_name as device_name
from .cuda import free_bytes as free_bytes
from .cuda import graph_class as graph_class
from .cuda import is_in_use as is_in_use
from .cuda import out_of_memory_error as out_of_memory_error
from .cuda import random_state as random_state
from .history import CudaHistory as CudaHistory
from .history import HistoryKeeper as HistoryKeeper
from .nvml import DeviceSample as DeviceSample
from .nvml import DeviceTotals as DeviceTotals
from .owned import Owned as Owned
from .seam import Accelerator as Accelerator
from .seam import DeviceMemory as DeviceMemory
from .seam import DeviceModel as DeviceModel
from .seam import Mark as Mark
from .seam import OutOfMemory as OutOfMemory
from .seam import PendingNumber as PendingNumber
from .seam import PendingNumbers as PendingNumbers
