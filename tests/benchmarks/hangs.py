"""What `probing hang` says of twelve faults in real jobs, and what torch's own analyzer says.

    python -m tests.benchmarks.hangs [FAULT ...]

Rules of this file: it starts each job, asks both, and prints one row of Markdown for each fault.
The flight recorder is written from inside the ranks, since gloo writes none at a timeout; a rank
that has ended has left none. What counts as named by the analyzer is what it prints as culprits or
missing ranks; since it does not get as far on gloo, it is also run on the same dumps with the name
of the default group put right in them.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.harness.jobs import Job, start_job
from tests.ranks.hang_faults import FAULTS, Fault, start, wait_for_verdict

_DUMP_S = 30.0


def main() -> int:
    """Run the faults that were named, or all."""
    print("| fault | put into | verdict | ranks named | command | fr_trace | the same, put right |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for fault in FAULTS:
        if not sys.argv[1:] or fault.name in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as folder:
                print(_row(fault, Path(folder)), flush=True)
    return 0


def _row(fault: Fault, cwd: Path) -> str:
    """One fault, asked of both."""
    dumps = cwd / "dumps"
    dumps.mkdir()
    jobs: list[Job] = []

    def job(program: str, *args: str, ranks: int = 4, **extra: str) -> Job:
        jobs.append(start_job(program, *args, ranks=ranks, cwd=cwd, **extra))
        return jobs[-1]

    try:
        started = start(job, fault, FR_DUMP=str(dumps), TORCH_FR_BUFFER_SIZE="2000")
        wait_for_verdict(started, fault)
        began = time.monotonic()
        verdict = wait_for_verdict(started, fault)
        seconds = time.monotonic() - began
        other = _fr_trace(dumps)
    finally:
        for each in jobs:
            each.reap()
    where = "all" if len(fault.named) > 1 else f"rank {fault.rank}"
    return f"| {fault.name} | {where} | {_words(verdict)} | {seconds:.1f} s | {other} |"


def _words(verdict: dict[str, Any]) -> str:
    """The kind of verdict, and whom it names."""
    named = ", ".join(str(cause["rank"]) for cause in verdict["causes"])
    ended = " (ended)" if verdict["has_ended"] else ""
    return f"{verdict['kind']}{ended} | {named or 'none'}"


def _fr_trace(dumps: Path) -> str:
    """What the analyzer says of the dumps, in few words."""
    (dumps / "dump").touch()
    deadline = time.monotonic() + _DUMP_S
    while time.monotonic() < deadline and len(list(dumps.glob("rank_[0-9]"))) < 4:
        time.sleep(0.2)
    (dumps / "dump").unlink()
    found = sorted(path.name for path in dumps.glob("rank_[0-9]"))
    if not found:
        return "no dump: all ranks have ended | the same"
    return f"{_analyze(dumps, len(found))} | {_analyze(_put_right(dumps), len(found))}"


def _put_right(dumps: Path) -> Path:
    """The dumps with the default group called as its entries call it."""
    right = dumps / "right"
    right.mkdir()
    for path in dumps.glob("rank_[0-9]"):
        data = pickle.loads(path.read_bytes())
        config = data["pg_config"]
        if "" in config and "0" not in config:
            config["0"] = {**config.pop(""), "name": "0"}
        (right / path.name).write_bytes(pickle.dumps(data))
    return right


def _analyze(dumps: Path, number: int) -> str:
    """The analyzer's words on a folder of dumps."""
    argv = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(dumps)]
    argv += ["--prefix", "rank_", "--allow-incomplete-ranks"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    if done.returncode:
        return f"crashes: `{text.strip().splitlines()[-1]}` ({number} dumps)"
    named = re.findall(r"(?i)(?:culprit|missing)[^\n]*", text)
    return "; ".join(dict.fromkeys(named)) or "names nobody"


if __name__ == "__main__":
    sys.exit(main())
