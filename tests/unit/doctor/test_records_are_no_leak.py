"""What probing itself keeps in shared memory is no sign of anything."""

from __future__ import annotations

from probing.diagnosis.doctor.rules.piling import _RECORD


def test_records_of_processes_are_known_wherever_they_are() -> None:
    """Also those of other processes, in folders of other names."""
    for name in ("memory.ring", "card.json", "fatal.txt", "held", "names"):
        assert _RECORD.search(f"/dev/shm/trainings-gbyk/1638-1315345/{name}")
    assert _RECORD.search("/dev/shm/probing-0/ended")


def test_what_a_program_writes_is_not_taken_for_one() -> None:
    """Neither by its numbers nor by its ending alone."""
    for path in ("/dev/shm/batch-17-3.bin", "/dev/shm/cache/12/memory.ring", "/dev/shm/12-7/a.npy"):
        assert not _RECORD.search(path)
