"""What grows and is no leak: what probing itself keeps in shared memory, a queue that fills."""

from __future__ import annotations

import dataclasses

import pytest

from probing.diagnosis.doctor.rules.memory.growth import _FILLED, _growth
from probing.diagnosis.doctor.rules.piling import _RECORD
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
