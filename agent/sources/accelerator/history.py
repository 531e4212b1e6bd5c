"""The history that an accelerator's allocator can keep of itself.

Rules of this file: runs in the agent's threads; its calls wait for no device.
"""

from __future__ import annotations

import sys
from typing import Any

from .api import device_api


class CudaHistory:
    """The history of torch's allocator for CUDA, or XPU."""

    def is_in_use(self) -> bool:
        """Whether the program has initialised the accelerator, and torch can keep one."""
        api = device_api()
        return bool(api.is_initialized() and hasattr(api.memory, "_record_memory_history"))

    def has_history(self) -> bool:
        """Whether one is kept already; taken to be off where an older torch does not tell."""
        ask = getattr(sys.modules["torch"]._C, "_cuda_isHistoryEnabled", None)
        return bool(ask and ask())

    def start_history(self, entries: int) -> None:
        """Keep one of so many events, with Python stacks.

        Without C++ frames, which cost more than all the rest.
        """
        memory = device_api().memory
        memory._record_memory_history("all", stacks="python", max_entries=entries)

    def stop_history(self) -> None:
        """Keep none any more."""
        device_api().memory._record_memory_history(None)

    def history(self) -> dict[str, Any]:
        """What the allocator holds and remembers, as torch's snapshots have it."""
        snapshot: dict[str, Any] = device_api().memory._snapshot()
        return snapshot
