"""Starts the agent and trains again and again, each time in a fork whose system calls fail.

Reads one JSON object per line: ``inject``, as `strace -e inject` takes it or empty; ``with_agent``,
whether there is to be one; and ``threads``, whether calls of other threads fail, too. Answers with
one per line: how the fork ended, what it printed, its losses, what the agent said of itself and on
its card, and how often each system call was made.
"""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from short_training import losses_of  # type: ignore[import-not-found]

from probing import _boot
from probing.agent import lifecycle

STEPS = 4
PATIENCE_S = 30.0
CALL = re.compile(r"^\d+ +(\w+)\(", re.MULTILINE)


def train() -> list[str]:
    """A short training; its losses to the last bit."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    return losses_of(model, STEPS)


def told() -> dict[str, Any]:
    """What the agent of this process says of itself, with no system call."""
    agent = lifecycle.current()
    if agent is None:
        return {"runs": False, "rows": 0, "problems": []}
    rings = getattr(agent.training, "_rings", None)
    made = rings.all() if rings is not None else ()
    rows = sum(ring.newest_word() >> 2 for ring in made if ring.layout.table.name == "torch_trace")
    problems = [*agent.problems, *agent.training.problems()]
    return {"runs": True, "rows": rows, "problems": problems}


def be_the_fork(gate: int, result: int, output: int, *, with_agent: bool) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        os.readv(gate, [bytearray(1)])  # a call that the agent never makes, as is pwrite
        if with_agent:
            _boot.start()
        said = {"losses": train(), **told()}
        lifecycle.stop()
        os.pwrite(result, json.dumps(said).encode(), 0)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - nothing of the fork may go on here
        os.pwrite(output, traceback.format_exc().encode(), 0)
        os._exit(1)


def status_of(pid: int) -> int | None:
    """How the fork has ended; None when it had to be killed."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def run(inject: str, *, with_agent: bool, threads: bool) -> dict[str, Any]:
    """Have one fork train, and see what became of it."""
    with (
        tempfile.TemporaryFile() as result,
        tempfile.TemporaryFile() as output,
        tempfile.NamedTemporaryFile("r") as trace,
    ):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            be_the_fork(reader, result.fileno(), output.fileno(), with_agent=with_agent)
        name = inject.partition(":")[0]
        options = ["-e", f"trace={name}", "-e", f"inject={inject}"] if inject else []
        options += ["-f"] if threads else []
        argv = ["strace", "-o", trace.name, *options, "-p", str(pid)]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            attached = strace.stderr.readline()
            assert "attached" in attached, attached + strace.stderr.read()
            os.write(writer, b"x")
            status = status_of(pid)
            strace.stderr.read()
        os.close(reader)
        os.close(writer)
        result.seek(0)
        output.seek(0)
        calls = collections.Counter(CALL.findall(trace.read()))
        card = on_card(pid)
        remove_record(pid)
        return {
            "status": status,
            "output": output.read().decode(),
            "calls": calls,
            "card": card,
            **json.loads(result.read() or b"{}"),
        }


def on_card(pid: int) -> list[str]:
    """What went wrong, as `probing list` shows it of the process."""
    for card in Path(os.environ["PROBING_HOME"]).glob(f"{pid}-*/card.json"):
        problems: list[str] = json.loads(card.read_text())["problems"]
        return problems
    return []


def remove_record(pid: int) -> None:
    """Have the next one find as many old records as this one did."""
    for folder in Path(os.environ["PROBING_HOME"]).glob(f"{pid}-*"):
        shutil.rmtree(folder)


if __name__ == "__main__":
    _boot.start()  # once without harm: what is imported then has been imported in every fork
    train()
    lifecycle.stop()
    _boot.forget()
    train()  # what torch does but once, with and without us
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)
