"""Processes for the benchmarks: programs with a result, timed commands, a place for run folders.

Rules of this file: every process started here is waited for here, or by whoever asked for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.targets import clean_env

_SHARED_MEMORY = Path("/dev/shm")
"""Where run directories are by default, too."""
_PACKAGE = "tests.benchmarks.programs"
KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(2 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(96 << 20),
}


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A run directory of the benchmark's own, in memory, as those of users are."""
    where = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="probing-benchmark-", dir=where) as folder:
        yield Path(folder)


def user_env(home: Path) -> dict[str, str]:
    """As `clean_env` of the tests, but with the usual budget, and modules are compiled once."""
    env = clean_env(home)
    env.pop("PROBING_OVERHEAD", None)
    return _without_flags(env)


def plain_env() -> dict[str, str]:
    """This environment with no word of probing in it, and no path of Python."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PROBING")}
    env.pop("PYTHONPATH", None)
    return _without_flags(env)


def _without_flags(env: dict[str, str]) -> dict[str, str]:
    """An environment in which Python keeps what it has compiled."""
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def program(name: str, **arguments: Any) -> list[str]:
    """The command line of a program."""
    return [sys.executable, "-m", f"{_PACKAGE}.{name}", json.dumps(arguments)]


def run_program(name: str, home: Path, *, threads: int = 1, **arguments: Any) -> Any:
    """Run a program to its end and return what it printed last.

    The C library keeps the memory it has: else the kernel is asked for the pages of large tensors
    again and again, thousands of times per step, now more and now less.

    Args:
        threads: How many threads torch may compute with.
    """
    env = {**user_env(home), **KEEPS_MEMORY, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        program(name, **arguments), env=env, cwd=home, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed with {done.returncode}: {done.stderr}{done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


def start_program(name: str, home: Path, **arguments: Any) -> subprocess.Popen[str]:
    """Start a program that goes on until its stdin is closed; its last line is its result."""
    return subprocess.Popen(
        program(name, **arguments),
        env=user_env(home),
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that a program prints."""
    assert process.stdout is not None  # it is a pipe
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the program ended with {process.wait()}")
    return line.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a command took, in seconds.

    Attributes:
        wall: From its start to its end.
        cpu: Processor time, which a busy machine changes less.
        peak_mib: What was resident of it at most.
    """

    wall: float
    cpu: float
    peak_mib: float


def cost_of(argv: Sequence[str], env: Mapping[str, str]) -> Cost:
    """Run a command and say what it took."""
    started = time.perf_counter()
    with subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None  # it is a pipe
        complaint = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed with {process.returncode}: {complaint}")
    return Cost(wall=wall, cpu=used.ru_utime + used.ru_stime, peak_mib=used.ru_maxrss / 1024)
