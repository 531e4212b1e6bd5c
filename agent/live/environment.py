"""What the process runs, with what, and in what, for ``python.environment``.

Rules of this file: runs in the agent's thread; imports nothing of the job's and starts no program.
The value of a secret never leaves the process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...arguments import arguments, is_secret, without_secrets
from ...linux import process
from ...messages.common import LiveRows
from ...tables import ENVIRONMENT
from .code import Code

if TYPE_CHECKING:
    from ..recording.no_training import NoTraining
    from ..recording.training import TorchTraining

_NAMES = re.compile(
    "(TORCH|PYTORCH|NCCL|GLOO|CUDA|CUBLAS|CUDNN|OMP|GOMP|MKL|KMP|OPENBLAS|MALLOC_|NVIDIA_TF32"
    "|TRITON|PYTHON)"
)
_OF_ONE_RANK = frozenset({"CUDA_VISIBLE_DEVICES", "TORCHELASTIC_RUN_ID"})
"""Variables that a launcher sets for each rank, or for each run."""
_PAPERS = frozenset({"TORCHELASTIC_ERROR_FILE"})
"""Variables that are another file for each rank, and tell nothing."""
_BINDINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables by which OpenMP keeps each thread on a processor of its own, the main one, too."""
_SALT = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
_FINGERPRINT = 4
"""Digits: enough to tell same from other, and too few to tell which."""

_TICK_S = 0.05
"""The kernel's time of a start is that of a tick before it, and no script is read so soon."""
_LONGEST = 4096
_MOST_BYTES = 1 << 16
_MACHINE = (
    ("cpu", "/proc/cpuinfo", re.compile(r"^model name\s*:(.*)$", re.MULTILINE)),
    ("driver", "/proc/driver/nvidia/version", re.compile(r"Kernel Module\D*([\d.]+)")),
)
"""What the kernel tells of the machine: the name, the file and where it stands in it."""

Row = tuple[str, str, str | None, bool, str | None]


def environment_rows(training: TorchTraining | NoTraining) -> LiveRows:
    """The rows of ``python.environment`` now."""
    rows = [
        *[_told("argument", *pair) for pair in arguments([str(word) for word in sys.argv])],
        *_code(),
        *(_row("configuration", *pair) for pair in sorted(training.configuration().items())),
        *_variables(),
        *_versions(),
        *_switches(),
        *_places(),
    ]
    return LiveRows.of(ENVIRONMENT, rows)


def _code() -> Iterator[Row]:
    """Which code runs; where it lies is no property of it."""
    for name, value in _files().rows():
        kind = "place" if name == "root" else "code"
        yield (kind, "code root" if name == "root" else name, value, False, None)


@functools.cache
def _files() -> Code:
    ticks = process.start_time(os.getpid()) or 0
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return Code(time.time_ns() - int(max(0.0, age_s - _TICK_S) * 1e9))


def _variables() -> list[Row]:
    rows: list[Row] = []
    for name in sorted(os.environ):
        if _NAMES.match(name) and name not in _PAPERS:
            kind = "place" if name in _OF_ONE_RANK else "environment"
            rows.append(_told(kind, name, os.environ[name]))
    return rows


def _versions() -> list[Row]:
    """Python, and every package that is imported and says its version."""
    rows = [_row("version", "python", platform.python_version())]
    for name, module in sorted(sys.modules.copy().items()):
        version = getattr(module, "__dict__", {}).get("__version__") if "." not in name else None
        if isinstance(version, str) and not name.startswith("_"):
            rows.append(_row("version", name, str(version)))
    return rows


def _switches() -> list[Row]:
    """What of torch makes a computation come out otherwise."""
    if "torch" not in sys.modules:
        return []
    from ..sources.torch_switches import seeds, switches

    rows = [_row("torch", name, value) for name, value in switches().items()]
    return rows + [_row("seed", name, value) for name, value in seeds().items()]


def _places() -> list[Row]:
    rows = [_row("place", "host", platform.node()), _row("place", "cpus", _cpus())]
    rows.append(_row("place", "kernel", platform.release()))
    for name, file, pattern in _MACHINE:
        found = pattern.search(_text(file))
        rows += [_row("place", name, found[1].strip())] if found else []
    if "torch" in sys.modules:
        from ..sources.torch_switches import compiled_frames

        frames = compiled_frames()
        rows += [] if frames is None else [_row("place", "compiled_frames", str(frames))]
    return rows


def _text(file: str) -> str:
    """A file of the kernel's; empty where there is none."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _cpus() -> str:
    """How many processors the main thread may use, or all threads where OpenMP binds each."""
    binds = any(os.environ.get(name, "false").lower() != "false" for name in _BINDINGS)
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task") if binds else (os.getpid(),):
        with contextlib.suppress(OSError):  # it may have ended
            found |= os.sched_getaffinity(int(thread))
    return str(len(found))


def _told(kind: str, name: str, value: str) -> Row:
    """A row of what a user has set, who may have set a secret."""
    if is_secret(name):
        return (kind, name, None, True, _fingerprint(name, value))
    return _row(kind, name, without_secrets(value)[:_LONGEST])


def _row(kind: str, name: str, value: str) -> Row:
    return (kind, name, value, False, None)


def _fingerprint(name: str, value: str) -> str:
    """A few bits of a secret, other ones in another job."""
    salt = "\n".join(os.environ.get(word, "") for word in _SALT)
    told = f"{salt}\n{name}\n{value}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(told).hexdigest()[:_FINGERPRINT]
