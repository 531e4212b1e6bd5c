"""The recorder beside torch.profiler and the package `probing` 0.2.4, each recording every call.

The other package comes from the package index into an environment of its own, which lends torch
from this one. It is left out, and that is said, where the index cannot be reached.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from .measures import Measure, bootstrap_median, rounds_for
from .processes import KEEPS_MEMORY, plain_env, temporary_home

_PACKAGE = "probing==0.2.4"
_PROGRAM = Path(__file__).parent / "programs" / "traced_steps.py"
_STEPS = {"gpt": 8, "calls": 40}
_OURS, _PROFILER, _THEIRS = "recorder", "torch.profiler", _PACKAGE


def measure(effort: float) -> Iterator[Measure]:
    """Whole processes in turn: nothing recorded, then with each of the others."""
    with (
        tempfile.TemporaryDirectory(prefix="probing-benchmark-") as folder,
        temporary_home() as home,
    ):
        python = _environment(Path(folder) / "venv")
        ways = {_OURS: sys.executable, _PROFILER: sys.executable}
        if python is None:
            print(f"rival: left out, {_PACKAGE} cannot be installed here", file=sys.stderr)
        else:
            ways[_THEIRS] = str(python)
        for model, what in (("gpt", "GPT: step"), ("calls", "call of a small module")):
            found: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds_for(4, effort, least=1)):
                bare = _run(sys.executable, model, home, "nothing")
                for way, interpreter in ways.items():
                    found[way].append(100 * (_run(interpreter, model, home, way) / bare - 1))
            for way, values in found.items():
                yield Measure(
                    what=f"{what}, slowdown by {way}",
                    unit="%",
                    values=tuple(values),
                    interval=bootstrap_median(values),
                )


def _environment(folder: Path) -> Path | None:
    """The interpreter of an environment with the other package; None where it cannot be had."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", _PACKAGE]
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        return None
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    (packages,) = folder.glob("lib/python*/site-packages")
    # A line of a .pth file lends modules only; .pth files that lie there are not run.
    (packages / "lent.pth").write_text(str(Path(torch.origin).parents[1]), "utf-8")
    return python


def _run(interpreter: str, model: str, home: Path, way: str) -> float:
    """Processor seconds per step of the training thread."""
    env = {**plain_env(), **KEEPS_MEMORY, "OMP_NUM_THREADS": "1", "PROBING_HOME": str(home)}
    if way == _OURS:
        env["PROBING"] = "1"
    elif way == _THEIRS:
        env.update(PROBING="1", PROBING_TORCH_PROFILING="random")  # its word for every module
    words = {"model": model, "steps": _STEPS[model], "profiled": way == _PROFILER}
    done = subprocess.run(
        [interpreter, str(_PROGRAM), json.dumps(words)],
        env=env,
        cwd=os.fspath(home),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way} failed with {done.returncode}: {done.stderr}{done.stdout}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    took: float = json.loads(lines[-1])["step_s"]
    return took
