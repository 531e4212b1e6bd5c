"""Programs of others that open what we write, and judge how we look: from npm's registry.

Rules of this file: fetched once for all tests, at the versions of the lock file; their install
scripts stay unrun.
"""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
_FETCH_S = 180


@functools.cache
def viewer(name: str) -> Path:
    """The folder of a package."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm, which fetches the viewers")
    found, stamp = _HERE / "node_modules" / name, _HERE / "node_modules" / ".fetched"
    lock = (_HERE / "package-lock.json").read_text()
    with (_HERE / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != lock:
            words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run([npm, *words], cwd=_HERE, timeout=_FETCH_S, check=True)
            stamp.write_text(lock)
    return found
