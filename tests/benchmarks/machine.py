"""What machine the figures are of."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_LIBRARIES = ("torch", "duckdb", "pyarrow", "numpy", "aiohttp")


def describe() -> dict[str, str]:
    """The machine's shape and the versions of what runs on it, ready to print."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return {
        "CPU": f"{_cpu_model()}, {cores} core{'s' if cores > 1 else ''}",
        "memory": f"{memory_gib:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: _version(name) for name in _LIBRARIES},
        "load at the start": f"{load:.1f}"
        + (" (busy: figures are too high)" if load > 0.5 else ""),
    }


def _cpu_model() -> str:
    """What the kernel calls the processor."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.machine())


def _version(name: str) -> str:
    """The version of an installed library."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
