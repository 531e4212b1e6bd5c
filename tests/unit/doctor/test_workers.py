"""What the doctor says of the memory of data workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from probing.diagnosis.dataloading import report_on
from probing.diagnosis.doctor.rules.memory.workers import _sign, grown
from probing.linux.host_memory import WorkerMemory, worker_memory

from .made import MadeProcess, facts, signs, steps

pytestmark = pytest.mark.anypython

_PROGRAM = """
import os, sys
pages = bytearray(24 << 20)
kept, ways = [], []
for what in sys.argv[1:]:
    down, up = os.pipe(), os.pipe()
    if not os.fork():
        os.close(down[1])
        open("/proc/self/comm", "w").write("pt_data_worker")
        os.write(up[1], b".")
        while os.read(down[0], 1):
            if what == "copies":
                for n in range(0, len(pages), 4096):
                    pages[n] = 1
            else:
                kept.append(b"x" * (4 << 20))
            os.write(up[1], b".")
        os._exit(0)
    os.close(down[0])
    os.read(up[0], 1)
    ways.append((down[1], up[0]))
print("ready", flush=True)
for _ in sys.stdin:
    for down, up in ways:
        os.write(down, b".")
        os.read(up, 1)
    print("done", flush=True)
"""


@contextmanager
def _trainer(*workers: str) -> Iterator[subprocess.Popen[str]]:
    """A process with workers that each do something with memory for each line that it gets."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *workers],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("workers", "growing"), [(("keeps", "keeps"), 2), (("copies", "copies"), 0), (("copies",), 0)]
)
def test_a_worker_grows_by_what_it_makes_and_not_by_copies(
    workers: tuple[str, ...], growing: int
) -> None:
    """Writing to what it has from its parent changes its private memory alone."""
    with _trainer(*workers) as process:
        before = worker_memory(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        found = grown(before, worker_memory(process.pid))
    assert len(before) == len(workers)
    assert len(found) == growing
    assert all(3 << 20 < rise < 8 << 20 for rise in found.values())


def test_what_comes_and_goes_is_no_growth() -> None:
    """A worker that has been larger does not grow; of many, half must."""
    mib = 1 << 20
    before = {pid: WorkerMemory(10 * mib, 50 * mib) for pid in range(4)}
    within = {pid: WorkerMemory(20 * mib, 50 * mib) for pid in range(4)}
    assert not grown(before, within)
    larger = {pid: WorkerMemory(20 * mib, 60 * mib) for pid in range(4)}
    assert grown(before, larger) == dict.fromkeys(range(4), 10 * mib)
    assert not grown(before, within | {0: larger[0]})


@pytest.mark.parametrize(
    ("columns", "certainty", "words"),
    [
        ({"epochs": 2, "persistent_workers": True}, "possible", "2 epochs have begun"),
        ({"epochs": 9, "persistent_workers": True}, "likely", ""),
        ({"epochs": 2, "persistent_workers": False}, "possible", "end with the epoch"),
    ],
)
def test_a_data_set_may_keep_each_sample_once(
    columns: dict[str, Any], certainty: str, words: str
) -> None:
    """Growth is likely a fault only once each worker has read all samples."""
    row = {"loader": 0, "dataset": "Rows", "num_workers": 2, "pid": 7, "worker": 0, **columns}
    of = facts({"steps": steps(60)}, {"dataloaders": [row]})
    sign = _sign(of, {7: 8 << 20}, {7: WorkerMemory(64 << 20, 64 << 20)}, 4.0)
    assert sign.certainty == certainty
    assert sign.summary.startswith(
        "Memory grows in 1 data worker of loader 0 (Rows): 2.00 MiB a second"
    )
    assert words in " ".join(sign.evidence)


def test_without_workers_there_is_nothing_to_say() -> None:
    """No look is waited for then."""
    assert (
        signs("worker-memory-grows", facts({"steps": steps(60)}, is_here=True, pid=os.getpid()))
        == []
    )


def test_steps_that_took_no_batch_count_in_the_share_of_waiting() -> None:
    """One wait of 0.8 s in four steps of one second is a fifth of their time."""
    made = [{"step": s, "duration": 1.0, "data_wait_s": None if s % 4 else 0.8} for s in range(40)]
    report = report_on(MadeProcess({"steps": made}, {"dataloaders": ()}))  # type: ignore[arg-type]
    assert report.wait_share == pytest.approx(0.2)
