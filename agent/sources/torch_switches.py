"""The switches of torch that make a computation come out otherwise.

Rules of this file: reads what torch has loaded; starts no device and imports nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .accelerator import device_names, is_in_use


def compiled_frames() -> int | None:
    """How many pieces of code torch.compile has compiled; None where it was not used."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return None if counters is None else int(counters["stats"]["unique_graphs"])


def switches() -> dict[str, str]:
    """Each switch with its value; without those that this torch does not have."""
    torch: Any = sys.modules["torch"]
    looks: dict[str, Callable[[], Any]] = {
        "cuda": lambda: torch.version.cuda,
        "git_version": lambda: torch.version.git_version,
        "default_dtype": torch.get_default_dtype,
        "num_threads": torch.get_num_threads,
        "num_interop_threads": torch.get_num_interop_threads,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        # Who asks for it has torch begin to use CUDA, after which no forked child may.
        "cudnn": lambda: torch.backends.cudnn.version() if is_in_use() else None,
        "cudnn.enabled": lambda: torch.backends.cudnn.enabled,
        "mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
        "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
        "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
        "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "device": device_names,
        "anomaly_detection": lambda: _anomaly_detection(torch),
        "profiler": lambda: torch.autograd.profiler._is_profiler_enabled,
    }
    found = {}
    for name, look in looks.items():
        try:
            value = look()
        except (AttributeError, RuntimeError):  # another version, or a build without it
            continue
        if value is not None:
            found[name] = str(value)
    return found


def _anomaly_detection(torch: Any) -> bool:
    """Whether the script has it on: torch.compile turns it on while it traces, without its check.

    The switch is one for all threads, so that it is seen from here.
    """
    compiles = "torch._dynamo.convert_frame" in sys.modules
    by_script = not compiles or torch.is_anomaly_check_nan_enabled()
    return bool(torch.is_anomaly_enabled() and by_script)


def seeds() -> dict[str, str]:
    """What generators of random numbers began with, where they tell."""
    torch: Any = sys.modules["torch"]
    return {"torch.initial_seed": str(torch.initial_seed())}
