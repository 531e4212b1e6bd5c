"""What grows and is no leak: what probing itself keeps in shared memory, a queue that fills."""

from __future__ import annotations

import dataclasses

import pytest

from probing.diagnosis.doctor.rules.memory.growth import _FILLED, _growth
from probing.diagnosis.doctor.rules.piling import _RECORD
from probing.diagnosis.leaks.report import report_of
from tests.unit.memory.leak_samples import KEPT_GRAPH

from .records import MIB, memory


def test_records_of_processes_are_known_wherever_they_are() -> None:
    """Also those of other processes, in folders of other names."""
    for name in ("memory.ring", "card.json", "fatal.txt", "held", "names"):
        assert _RECORD.search(f"/dev/shm/trainings-gbyk/1638-1315345/{name}")
    assert _RECORD.search("/dev/shm/probing-0/ended")


def test_what_a_program_writes_is_not_taken_for_one() -> None:
    """Neither by its numbers nor by its ending alone."""
    for path in ("/dev/shm/batch-17-3.bin", "/dev/shm/cache/12/memory.ring", "/dev/shm/12-7/a.npy"):
        assert not _RECORD.search(path)


@pytest.mark.parametrize(
    ("kept", "says", "is_filled"), [(MIB // 16, "likely", False), (MIB, "possible", True)]
)
def test_what_was_kept_in_a_watch_has_to_be_what_memory_grew_by(
    kept: int, says: str, *, is_filled: bool
) -> None:
    """Far more than that is a buffer that was being filled in the few steps of the watch."""
    (leak,) = (one for one in KEPT_GRAPH.leaks if one.bytes_per_step)
    report = dataclasses.replace(
        KEPT_GRAPH, findings=(dataclasses.replace(leak, bytes_per_step=float(kept)),)
    )
    of = memory(lambda step: 100 * MIB + step * MIB // 16)
    (sign,) = _growth(of, lambda _: (report, ""), lambda *_: None)
    assert sign.certainty == says
    assert (_FILLED in sign.evidence) == is_filled


@pytest.mark.parametrize(
    ("kept", "says", "words"),
    [
        (2 * MIB, "possible", "a collection with a limit is filling in replay.memory (dqn.py:3)"),
        (MIB, "possible", "a collection with a limit is filling"),
        (MIB // 2, "likely", "no tensor that is kept was seen"),  # something else is what grows
    ],
)
def test_a_replay_memory_that_fills_is_named(kept: int, says: str, words: str) -> None:
    """A queue with a limit ends to grow by itself, if it is what makes most of the growth."""
    row = {
        "path": "replay.memory", "place": "here", "holder": "container", "name": "tensors",
        "category": "tensors", "bound": 100_000, "bytes_per_step": float(kept),
        "tensors_per_step": 4.0, "shape": "[4,84,84]", "has_graph": False, "was_input": False,
        "file": "/home/me/dqn.py", "lineno": 3,
    }  # fmt: skip
    looks = [
        {"step": step, "category": "tensors", "bytes": 500 * MIB + step * kept,
         "tensors": 100 + 4 * step, "modules": 1, "stale_gradients": None}
        for step in range(9)
    ]  # fmt: skip
    report = report_of([row], looks, [])
    of = memory(lambda step: 500 * MIB + 2 * step * MIB)
    (sign,) = _growth(of, lambda _: (report, ""), lambda *_: None)
    assert sign.certainty == says
    assert words in sign.summary
    assert ("its limit is 100,000 items" in sign.evidence) == (says == "possible")
