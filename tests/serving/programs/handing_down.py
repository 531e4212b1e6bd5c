"""Starts what trainings start, and prints what each of them has of the tokens.

Its children are a command, a worker of each kind, such as loaders have, and ranks. It takes the
agent out, and tells what is there then, when the file ``stop`` is.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("PROBING_TOKEN", "PROBING_READ_TOKEN")


def tokens() -> list[str]:
    """The tokens in the environment of this process, as itself and as the kernel shows it."""
    shown = Path("/proc/self/environ").read_bytes().split(b"\0")
    values = [part.partition(b"=")[2].decode() for part in shown if part.startswith(b"PROBING_")]
    told = [value for value in values if "secret" in value]
    return told + [os.environ[name] for name in NAMES if name in os.environ]


def work(results: Any) -> None:
    """What a worker does: tells, and ends."""
    results.put(tokens())


def rank() -> None:
    """What a rank does: is there."""
    time.sleep(600)


def main() -> None:
    """Start all of them."""
    found = {"own": tokens()}
    code = "import os; print([n for n in os.environ if n.startswith('PROBING_') and 'TOKEN' in n])"
    found["command"] = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    for method in ("fork", "spawn", "forkserver"):
        context: Any = multiprocessing.get_context(method)
        results = context.Queue()
        worker = context.Process(target=work, args=(results,), daemon=True)
        worker.start()
        found[method] = results.get()
        worker.join()
    ranks = {}
    for method in ("fork", "spawn"):
        parent: Any = multiprocessing.get_context(method)
        child = parent.Process(target=rank)
        child.start()
        ranks[method] = child.pid
    print(json.dumps(found), json.dumps(ranks), sep="\n", flush=True)
    print("ready", flush=True)
    while not Path("stop").exists():
        time.sleep(0.02)
    from probing import host

    host.stop()
    print(f"stopped with {json.dumps(sorted(set(tokens())))}", flush=True)  # written at once
    for child in multiprocessing.active_children():
        child.kill()


if __name__ == "__main__":
    main()
