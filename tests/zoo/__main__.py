"""Start each program of the zoo, ask one command about it, and keep what it said.

python -m tests.zoo [NAME ...] [--command 'probing PID doctor --format json'] [--output DIR]

Nothing is judged here: that is done by comparing what was said with `expected.toml`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass

from tests.zoo.table import Expectation, expectations
from tests.zoo.trainings import NotThere, Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to ask, and how long to wait."""

    command: str
    attach: str
    settle_s: float
    timeout_s: float
    deadline_s: float
    output: pathlib.Path


def main() -> None:
    """Run the programs in turn and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; none: all of them")
    parser.add_argument("--command", default="probing PID doctor --format json", help=_COMMAND_HELP)
    parser.add_argument("--attach", default="probing attach PID", help="for late attach; '': none")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds from there to the look")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the command")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds until the look")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("zoo"))
    arguments = parser.parse_args()
    options = Options(
        command=arguments.command,
        attach=arguments.attach,
        settle_s=arguments.settle,
        timeout_s=arguments.timeout,
        deadline_s=arguments.deadline,
        output=arguments.output,
    )
    for expected in expectations(arguments.names):
        result = look_at(expected, options)
        print(f"{expected.name:12} {expected.group:8} {result}", flush=True)


_COMMAND_HELP = (
    "what to run when the program is worth a look; PID is its process, and becomes `-t all` where"
    " the program runs as several ranks"
)


def look_at(expected: Expectation, options: Options) -> str:
    """Start one program, ask about it, save all that was said, and return one line."""
    folder = options.output.resolve() / expected.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # A run directory of its own, with a short name: sockets lie in it, and `all` is this job alone.
    home = pathlib.Path(tempfile.mkdtemp(prefix="zoo-", dir="/dev/shm"))
    try:
        with contextlib.closing(Training(expected, folder, home)) as training:
            training.wait_until_worth_a_look(options.deadline_s)
            if expected.start == "late" and options.attach:
                _ask(options.attach, training, folder / "attach.json", options.timeout_s)
                time.sleep(options.settle_s)
            said = _ask(options.command, training, folder / "said.json", options.timeout_s)
    except NotThere as error:
        (folder / "said.json").write_text(json.dumps({"problem": str(error)}))
        return str(error)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(folder / "work", ignore_errors=True)
    return said


def _ask(command: str, training: Training, path: pathlib.Path, timeout_s: float) -> str:
    words = _words(command, training)
    words[0] = shutil.which(words[0], path=training.environment["PATH"]) or words[0]
    began, step = time.monotonic(), training.step
    try:
        done = subprocess.run(
            words,
            env={**training.environment, "PROBING": "0"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
        code, out, problems = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, problems = None, "", f"no answer within {timeout_s:.0f} s"
    seconds = time.monotonic() - began
    record = {
        "command": words,
        "pids": training.pids,
        "exit_code": code,
        "seconds": round(seconds, 2),
        "step_before": step,
        "step_after": training.step,
        "training_exit_codes": [process.poll() for process in training.processes],
        "stdout": out,
        "stderr": problems,
    }
    path.write_text(json.dumps(record, indent=1))
    return f"exit code {code}, {seconds:.1f} s, {len(out)} characters"


def _words(command: str, training: Training) -> list[str]:
    whom = [str(training.pids[0])] if training.expected.world == 1 else ["-t", "all"]
    words = []
    for word in shlex.split(command):
        words += whom if word == "PID" else [word]
    return words


if __name__ == "__main__":
    main()
