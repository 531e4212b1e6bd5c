"""What the process runs in, for ``python.environment``.

Rules of this file: runs in the agent's thread; imports nothing of the job's.
The value of a secret never leaves the process.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys

from ...messages.common import LiveRows
from ...tables import ENVIRONMENT

_NAMES = re.compile("(TORCH|PYTORCH|NCCL|GLOO|CUDA|CUBLAS|CUDNN|OMP|MKL|KMP|PYTHON)")
_SECRET = re.compile("TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
_OF_ONE_RANK = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Variables that a launcher sets for each rank."""
_PAPERS = frozenset({"TORCHELASTIC_ERROR_FILE"})
"""Variables that are another file for each rank, and tell nothing."""
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SALT = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
_FINGERPRINT = 4
"""Digits: enough to tell same from other, and too few to tell which."""

Row = tuple[str, str, str | None, bool, str | None]


def environment_rows() -> LiveRows:
    """The rows of ``python.environment`` now."""
    rows = [*_variables(), *_versions(), *_switches(), *_places()]
    columns = tuple(column.name for column in ENVIRONMENT.columns)
    return LiveRows(table=ENVIRONMENT.name, columns=columns, rows=tuple(rows))


def _variables() -> list[Row]:
    """The environment variables that matter."""
    rows: list[Row] = []
    for name in sorted(os.environ):
        if not _NAMES.match(name) or name in _PAPERS:
            continue
        value = os.environ[name]
        if _SECRET.search(name):
            rows.append(("environment", name, None, True, _fingerprint(name, value)))
        else:
            kind = "place" if name in _OF_ONE_RANK else "environment"
            rows.append(_row(kind, name, _LOGIN.sub("***", value)))
    return rows


def _versions() -> list[Row]:
    """Python, and every package that is imported and says its version."""
    rows = [_row("version", "python", platform.python_version())]
    for name, module in sorted(sys.modules.items()):
        version = getattr(module, "__dict__", {}).get("__version__") if "." not in name else None
        if isinstance(version, str) and not name.startswith("_"):
            rows.append(_row("version", name, str(version)))
    return rows


def _switches() -> list[Row]:
    """What of torch makes a computation come out otherwise."""
    if "torch" not in sys.modules:
        return []
    from ..sources.torch_switches import switches

    return [_row("torch", name, value) for name, value in switches().items()]


def _places() -> list[Row]:
    """Where the process is."""
    rows = [_row("place", "host", platform.node()), _row("place", "cpus", _cpus())]
    if "torch" in sys.modules:
        from ..sources.torch_switches import compiled_frames

        frames = compiled_frames()
        rows += [] if frames is None else [_row("place", "compiled_frames", str(frames))]
    return rows


def _cpus() -> str:
    """How many processors its main thread may use."""
    return str(len(os.sched_getaffinity(os.getpid())))


def _row(kind: str, name: str, value: str) -> Row:
    return (kind, name, value, False, None)


def _fingerprint(name: str, value: str) -> str:
    """A few bits of a secret, other ones in another job."""
    salt = "\n".join(os.environ.get(word, "") for word in _SALT)
    return hashlib.sha256(f"{salt}\n{name}\n{value}".encode()).hexdigest()[:_FINGERPRINT]
