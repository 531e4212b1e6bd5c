"""The command ``scripts/gpu``; see the package's docstring.

Rules of this file: it starts checks one after the other, waits for each no longer than that may
take, and tells what they found. It needs no torch, and goes on after whatever fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.gpu import findings
from tests.gpu.findings import FAILED, Finding

ROOT = Path(__file__).resolve().parents[2]
NAMES = {
    "fork": 60,
    "capture": 60,
    "waits": 45,
    "numbers": 40,
    "nccl": 45,
    "hang": 30,
    "device times": 30,
    "cost": 110,
    "compiled": 60,
    "memory": 30,
    "allocator": 30,
    "expandable": 20,
    "no context": 30,
    "detach": 30,
    "profile": 30,
    "devices": 20,
    "soak": 50,
}
"""The checks in order, and how many seconds each may take; `tests.gpu.checks` has what they do."""
_ENOUGH_S = 540
_DEATHS = re.compile(r"terminate called|Aborted|CUDA error|Segmentation fault|core dumped")
_ALLOCATORS = {"allocator": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"}
"""The checks of another allocator, or another way of torch's own."""


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu", description="Show on a GPU what only a GPU can show."
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="CHECK", help=f"one of: {', '.join(NAMES)}; none means all")
    add("--fake", action="store_true", help="on a made-up CUDA: do the checks run?")
    add("--out", type=Path, default=Path("gpu.md"), help="the file for docs/benchmarks.md")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no check is called {unknown[0]}; there are {', '.join(NAMES)}")
    if importlib.util.find_spec("torch") is None:
        parser.error(f"{sys.executable} has no torch: set PYTHON to one that has")
    return options


def main() -> int:
    """Run the checks that were asked for."""
    options = parse_options()
    begin, results = time.monotonic(), dict[str, list[Finding]]()
    for name in options.names or NAMES:
        left_s = _ENOUGH_S - (time.monotonic() - begin)
        if left_s < 5 and not options.fake:
            results[name] = [findings.left_out("the check", "the nine minutes are over")]
            continue
        started = time.monotonic()
        limit_s = NAMES[name] if options.fake else min(NAMES[name], left_s)
        results[name] = run(name, limit_s=limit_s, is_fake=options.fake)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    seconds = time.monotonic() - begin
    print(findings.plain(results))
    page = findings.markdown(results, machine(), is_fake=options.fake, seconds=seconds)
    options.out.write_text(page, "utf-8")
    return 0 if findings.is_good(results) else 1


def run(name: str, *, limit_s: float, is_fake: bool) -> list[Finding]:
    """One check in a process of its own, which ends with it and all that it has started."""
    argv = [sys.executable, "-m", "tests.gpu.check", name, *(["--fake"] if is_fake else [])]
    limit_s *= 4 if is_fake else 1  # a machine without a device may be a small one
    with tempfile.TemporaryDirectory(prefix="probing-gpu-") as folder:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PROBING")}
        env |= {"PROBING_HOME": f"{folder}/home", "PYTHONPATH": str(ROOT)}
        if name in _ALLOCATORS:
            env["PYTORCH_CUDA_ALLOC_CONF"] = _ALLOCATORS[name]
        out, log = Path(folder, "out"), Path(folder, "log")
        with out.open("wb") as stdout, log.open("wb") as stderr:
            child = subprocess.Popen(
                argv, cwd=ROOT, env=env, stdout=stdout, stderr=stderr, start_new_session=True
            )
            ended = _wait(child, limit_s)
        found = findings.decode_findings(out.read_text("utf-8", "replace").splitlines())
        return [*found, *_endings(ended, log.read_text("utf-8", "replace"), limit_s)]


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """How it ended; None where its time was up."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, 9)
            child.wait()


def _endings(code: int | None, log: str, limit_s: float) -> list[Finding]:
    """What went wrong with the process itself."""
    found = []
    if code is None:
        found.append(Finding("the check", f"took longer than {limit_s:.0f} s", "ends", FAILED))
    elif code < 0:
        found.append(Finding("the check", f"died of signal {-code}", "ends", FAILED))
    said = next((line for line in log.splitlines() if _DEATHS.search(line)), None)
    if said is not None:
        found.append(
            Finding("on its error output", said.strip()[:200], "nothing of the kind", FAILED)
        )
    if found or (code or 0) > 0:
        print(log[-4000:], file=sys.stderr)
    return found


def machine() -> dict[str, str]:
    """What the figures are of."""
    code = (
        "import torch, sys; c = torch.cuda; ok = c.is_available();"
        "print(c.get_device_name(0) if ok else 'none', torch.__version__, torch.version.cuda,"
        " sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    device, torch, cuda = (done.stdout.strip().split("|") + ["unknown"] * 3)[:3]
    cores = len(os.sched_getaffinity(0))
    return {
        "device": device,
        "torch": torch,
        "CUDA": cuda,
        "Python": platform.python_version(),
        "cores": str(cores),
        "kernel": f"{platform.system()} {platform.release()}",
    }


if __name__ == "__main__":
    sys.exit(main())
