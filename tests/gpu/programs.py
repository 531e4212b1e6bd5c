"""Start the programs of `programs/` on a device, ask the doctor about each, and judge its answers.

python -m tests.gpu.programs [NAME ...] [--at-once 3] [--seconds 25] [--output DIR]

The programs were written by somebody who did not know the doctor's rules. `programs.toml` says
what is true of each. They run where the variable DEVICE says: on `cuda`, or on `cpu`.

Rules of this file: it needs this tree and a Python 3.11 with torch and what `probing` depends on,
and installs nothing. It ends whatever it has started, and goes on after a program that cannot be
asked. Each program has a thread of its own here, which alone starts, asks and ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.gpu.truth import VERDICTS, Program, findings, programs, rules, verdict

ROOT = Path(__file__).resolve().parents[2]
_ANSWER_S, _FIRST_STEP_S, _GRACE_S = 60, 120, 5


def look_at(
    program: Program, output: Path, seconds: float, stop: threading.Event
) -> dict[str, Any]:
    """Have one program train, ask the doctor, keep the answer, and end the program."""
    log = output / f"{program.expected.name}.log"
    # Sockets lie in it: a short name.
    home = tempfile.mkdtemp(prefix="gpu-")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PROBING")}
    env |= {"PROBING_HOME": f"{home}/home", "PYTHONPATH": _paths(), "TMPDIR": home}
    if env.get("DEVICE") == "cpu":
        env.setdefault("OMP_NUM_THREADS", "1")  # they share the processors
    try:
        with _training(program, log, {**env, "PYTHONUNBUFFERED": "1"}, home) as process:
            if problem := _wait(process, log, seconds, stop):
                return {"problem": problem}
            return _ask(process.pid, env)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _paths() -> str:
    """This tree, and where else packages lie that a bare Python lacks."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))


@contextlib.contextmanager
def _training(
    program: Program, log: Path, env: dict[str, str], home: str
) -> Iterator[subprocess.Popen[bytes]]:
    # `run` is what PROBING=1 is where the start-up hook is not installed; it becomes the program.
    argv = [sys.executable, "-m", "probing", "run", str(program.path)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        for number, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)  # workers may outlive the program
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)


def _wait(
    process: subprocess.Popen[bytes], log: Path, seconds: float, stop: threading.Event
) -> str:
    """Wait for the first step and so many seconds; returns why it is not to be asked, if so."""
    until, has_begun = time.monotonic() + _FIRST_STEP_S, False
    while time.monotonic() < until:
        if stop.wait(0.2):
            return "called off"
        if process.poll() is not None:
            return f"ended with {process.returncode}, see {log.name}"
        if not has_begun and any(s.startswith(b"step ") for s in log.read_bytes().splitlines()):
            until, has_begun = time.monotonic() + seconds, True
    return "" if has_begun else f"no step in {_FIRST_STEP_S} s, see {log.name}"


def _ask(pid: int, env: dict[str, str]) -> dict[str, Any]:
    argv = [sys.executable, "-m", "probing", str(pid), "doctor", "--timeout", "15",
            "--format", "json"]  # fmt: skip
    begin = time.monotonic()
    try:
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"no answer in {_ANSWER_S} s"}
    if not done.stdout.startswith("{"):
        return {"problem": f"no report: {(done.stderr.splitlines() or ['no reason'])[0]}"}
    return {"stdout": done.stdout, "seconds": time.monotonic() - begin}


def keep(program: Program, said: dict[str, Any], output: Path) -> str:
    """Write the answer as JSON and as text, and return its verdict."""
    name, what = program.expected.name, verdict(program, said)
    is_true = program.expected.fault or f"Healthy. {program.expected.looks}"
    lines = [f"{name}: {what}", f"true: {is_true}", ""]
    for number, found in enumerate(findings(said), 1):
        lines.append(f"{number} {found['rule']} ({found['certainty']}): {found['summary']}")
        lines += [f"    - {line}" for line in found["evidence"]]
    (output / f"{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (output / f"{name}.json").write_text(said.get("stdout") or json.dumps(said), "utf-8")
    return what


def main() -> int:
    """Run them, print a line for each as it is done, and the counts; 1 where one was not asked."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.programs", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="programs; none: all of them")
    add("--at-once", type=int, default=3, metavar="N", help="so many at once; 1: no neighbours")
    add(
        "--seconds", type=float, default=25, metavar="S", help="from its first step to the question"
    )
    add("--output", type=Path, default=Path("gpu-programs"), metavar="DIR", help="for the answers")
    options = parser.parse_args()
    chosen, output = programs(options.names), options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    counts, stop = Counter[str](), threading.Event()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadPoolExecutor(max(1, options.at_once)) as pool:
        asked = {pool.submit(look_at, one, output, options.seconds, stop): one for one in chosen}
        try:
            for done in as_completed(asked):
                program, said = asked[done], done.result()
                what = keep(program, said, output)
                counts[what] += 1
                told = ", ".join(rules(program, said)) or "-"
                about = f"{program.expected.name:12} {program.expected.group:8}"
                print(f"{about} {what:12} {told}", flush=True)
        except KeyboardInterrupt:
            counts["called off"] += 1
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    print("; ".join(f"{what}: {number}" for what, number in counts.most_common()))
    return 0 if set(counts) <= VERDICTS else 1


if __name__ == "__main__":
    sys.exit(main())
