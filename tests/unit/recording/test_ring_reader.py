"""A ring is read right whatever its writer does, and whatever has been done to the file."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from probing.errors import RingError
from probing.ring import format as ring, writer
from probing.ring.columns import scan
from probing.ring.columns.scan import Columns, read_columns
from probing.ring.native import IN_C
from probing.ring.reader import RingRows, RingSnapshot, read_ring as read_by_numpy
from probing.ring.ring_file import MOST_CONTRADICTED, RingFile
from probing.tables import STEPS
from tests import faults
from tests.harness.large_rings import large_ring
from tests.harness.ring_writer import RingWriter, trace_values, trace_writer
from tests.harness.targets import program_path, wait_until

pytestmark = pytest.mark.anypython

CAPACITY = 16
_CODES = {"q": "<i8", "d": "<f8", "I": "<u4", "B": "u1"}
_turns = itertools.count()


def read_by_c(
    path: Path, columns: Collection[str] | None = None, *, is_still: bool = False
) -> RingSnapshot:
    """What the C part reads, as the other reader shows it."""
    return shown(read_columns(path, columns, threads=2, is_still=is_still))


def shown(found: Columns) -> RingSnapshot:
    """What the C part has read, as the other reader shows it."""
    runs = np.frombuffer(found.runs, np.int64).reshape(-1, 2)
    order = np.concatenate([np.arange(0), *(np.arange(at, at + some) for at, some in runs)])
    assert len(order) == found.length
    rows = RingRows(
        numbers=np.frombuffer(found.numbers, np.int64)[order],
        states=np.frombuffer(found.states, np.uint8)[order],
        columns={
            name: np.frombuffer(raw.data, _CODES.get(raw.field.code, f"S{raw.width}"))[order]
            for name, raw in found.raw.items()
        },
    )
    books = ("header", "written", "overwritten", "dropped", "torn", "is_cut")
    return RingSnapshot(rows=rows, **{name: getattr(found, name) for name in books})


def read_ring(path: Path, columns: Collection[str] | None = None) -> RingSnapshot:
    """A ring that is not written meanwhile, by both readers, and read once: all say the same."""
    try:
        snapshot = read_by_numpy(path, columns)
    except (RingError, OSError) as error:
        if IN_C is not None:
            with pytest.raises(type(error), match=re.escape(str(error))):
                read_by_c(path, columns)
        raise
    for is_still in (False, True) if IN_C is not None else ():
        other = read_by_c(path, columns, is_still=is_still)
        assert dataclasses.replace(other, rows=snapshot.rows) == snapshot
        for name in ("numbers", "states"):
            assert getattr(other.rows, name).tobytes() == getattr(snapshot.rows, name).tobytes()
        assert other.rows.columns.keys() == snapshot.rows.columns.keys()
        for name, values in other.rows.columns.items():
            assert values.tobytes() == snapshot.rows[name].tobytes()
    return snapshot


def read_live(path: Path) -> RingSnapshot:
    """A ring that is written meanwhile, by both readers in turn."""
    return (read_by_c if IN_C is not None and next(_turns) % 2 else read_by_numpy)(path)


def assert_balanced(snapshot: RingSnapshot) -> None:
    """Every numbered row is accounted for, and rows come in ascending order."""
    assert snapshot.written == len(snapshot.rows) + snapshot.overwritten + snapshot.torn
    assert min(snapshot.overwritten, snapshot.torn) >= 0
    assert (np.diff(snapshot.rows.numbers) > 0).all()


def assert_true_to_numbers(snapshot: RingSnapshot) -> None:
    """Every column of every row is what the row's number makes it: no row is mixed."""
    rows = snapshot.rows
    done = rows.states == ring.DONE
    assert set(np.unique(rows.states)) <= {ring.OPEN, ring.DONE}
    assert (rows["start_ns"] == rows.numbers * 1000).all()
    assert (rows["step"] == rows.numbers // 4).all()
    assert (rows["module"] == 1 + rows.numbers % 3).all()
    assert (rows["duration_ns"][done] == rows.numbers[done] * 10).all()
    assert (rows["allocated_bytes"][done] == rows.numbers[done] << 20).all()


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 31, 32, 33, 100])
def test_every_row_still_held_is_read(tmp_path: Path, count: int) -> None:
    """Empty, filling, full and overwritten rings give their newest rows, in order."""
    path = trace_writer(capacity=CAPACITY, rows=count).save(tmp_path / "x.ring")
    snapshot = read_ring(path)
    assert_balanced(snapshot)
    assert_true_to_numbers(snapshot)
    oldest = max(1, count - CAPACITY + 1)
    assert snapshot.rows.numbers.tolist() == list(range(oldest, count + 1))
    assert (snapshot.written, snapshot.torn) == (count, 0)


def test_a_large_ring_is_read_in_pieces(tmp_path: Path) -> None:
    """A ring of many pieces, overwritten up to the middle, loses nothing at their borders."""
    path = trace_writer(capacity=40_000, rows=60_001).save(tmp_path / "x.ring")
    snapshot = read_ring(path)
    assert_true_to_numbers(snapshot)
    assert snapshot.rows.numbers.tolist() == list(range(20_002, 60_002))


@pytest.mark.skipif(IN_C is None, reason="the C part was not built")
@pytest.mark.parametrize("slots", [CAPACITY, CAPACITY - 5])
@pytest.mark.parametrize("ahead", range(-3, CAPACITY + 2))
def test_rows_come_in_order_wherever_reading_began(tmp_path: Path, slots: int, ahead: int) -> None:
    """A writer that ran on has its newest rows among the slots that are read first."""
    path = trace_writer(capacity=CAPACITY, rows=40).save(tmp_path / "x.ring")
    with path.open("r+b") as file:
        header, row = ring.decode_header(file.read(ring.HEADER_SIZE), source=""), b"\x01"
        file.seek(ring.HEADER_SIZE + 3 * header.row_size)
        file.write(row * header.row_size)  # one that is damaged, in the middle of them
        file.truncate(ring.HEADER_SIZE + slots * header.row_size)
    with RingFile(path) as file:
        reading = scan._Scan(file, 40 - ahead, None, 1, is_still=False)
        reading.read_all()
        reading.settle()
        snapshot = shown(reading.result())
    assert_balanced(snapshot)
    assert_true_to_numbers(snapshot)
    assert snapshot.rows.numbers.tolist() == read_by_numpy(path).rows.numbers.tolist()


@pytest.mark.skipif(IN_C is None, reason="the C part was not built")
def test_threads_read_a_large_ring_as_one_does(tmp_path: Path) -> None:
    """Each piece comes to its place, in memory of the kernel's too, and so does damage."""
    path = large_ring(tmp_path / "x.ring", rows=600_000)
    with path.open("r+b") as file:
        for slot in (0, 4095, 4096, 300_000, 599_999):
            file.seek(ring.HEADER_SIZE + slot * 64 + 20)
            file.write(b"\xff" * 40)
    one, several = (read_columns(path, {"step", "stage"}, threads=count) for count in (1, 4))
    assert one.length == several.length == 599_995
    for name, raw in one.raw.items():
        assert raw.data == several.raw[name].data
    assert one._replace(raw={}) == several._replace(raw={})


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    """Only the columns asked for are taken; an unknown one is left out."""
    path = trace_writer(capacity=CAPACITY, rows=5).save(tmp_path / "x.ring")
    assert set(read_ring(path, {"step", "no_such"}).rows.columns) == {"step"}


def test_open_and_failed_rows_are_told_apart(tmp_path: Path) -> None:
    """The end marker says whether a row is open, done, or failed."""
    writer = trace_writer(capacity=CAPACITY, rows=1)
    writer.close(writer.open(**trace_values(2)), failed=True)
    writer.open(**trace_values(3))
    states = read_ring(writer.save(tmp_path / "x.ring")).rows.states.tolist()
    assert states == [ring.DONE, ring.FAILED, ring.OPEN]


def test_rows_that_a_writer_dropped_come_from_the_header(tmp_path: Path) -> None:
    """`dropped` is the writer's own count; such rows have no number."""
    writer = trace_writer(capacity=CAPACITY, rows=3)
    ring.DROPPED.pack_into(writer.data, ring.dropped_offset(), 7)
    snapshot = read_ring(writer.save(tmp_path / "x.ring"))
    assert (snapshot.dropped, snapshot.written) == (7, 3)


def test_a_row_cut_off_while_it_was_opened_is_torn(tmp_path: Path) -> None:
    """A begin marker without its end marker is counted and never shown."""
    writer = trace_writer(capacity=CAPACITY, rows=20)
    at = ring.HEADER_SIZE + 21 % CAPACITY * writer.layout.row_size
    ring.MARKER.pack_into(writer.data, at, 21 * 4)
    snapshot = read_ring(writer.save(tmp_path / "x.ring"))
    assert_balanced(snapshot)
    assert (snapshot.torn, snapshot.rows.numbers.tolist()) == (1, list(range(6, 21)))


def test_a_newest_row_that_is_being_completed_still_counts_as_written(tmp_path: Path) -> None:
    """Its end is cleared before it is written again, by `pack_into`."""
    writer = trace_writer(capacity=CAPACITY, rows=20)
    layout = writer.layout
    at = ring.HEADER_SIZE + 20 % CAPACITY * layout.row_size
    writer.data[at + layout.close_offset : at + layout.row_size] = bytes(layout.close_struct.size)
    snapshot = read_ring(writer.save(tmp_path / "x.ring"))
    assert_balanced(snapshot)
    assert snapshot.rows.numbers.tolist() == list(range(5, 20))
    assert (snapshot.written, snapshot.torn) == (20, 1)


@pytest.mark.parametrize("begin", [0, 36])
def test_a_newest_row_that_is_being_overwritten_still_counts_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int
) -> None:
    """The writer has come round to it while all before it were read: nothing is in its slot."""
    slot = 20 % CAPACITY
    writer = trace_writer(capacity=CAPACITY, rows=20)
    size = writer.layout.row_size
    before = bytes(writer.data)
    while writer.written < 35:
        writer.write(**trace_values(writer.written + 1))
    at = ring.HEADER_SIZE + slot * size
    writer.data[at : at + size] = bytes(size)
    ring.MARKER.pack_into(writer.data, at, begin * 4)
    path = writer.save(tmp_path / "x.ring")

    def read_early(fd: int, buffers: list[memoryview], offset: int) -> int:
        """All other slots as they were a lap ago."""
        length = len(buffers[0])
        data = bytearray(before)
        data[at : at + size] = os.pread(fd, size, at)
        buffers[0][:] = data[offset : offset + length]
        return length

    monkeypatch.setattr(os, "preadv", read_early)
    snapshot = read_by_numpy(path)
    assert_balanced(snapshot)
    assert snapshot.rows.numbers.tolist() == list(range(5, 20))
    assert (snapshot.written, snapshot.torn) == (20, 1)


def test_the_row_after_the_newest_is_counted_when_it_is_torn(tmp_path: Path) -> None:
    """In a ring that is not full yet, a half-written row is one more row written."""
    writer = trace_writer(capacity=CAPACITY, rows=4)
    at = ring.HEADER_SIZE + 5 * writer.layout.row_size
    ring.MARKER.pack_into(writer.data, at, 5 * 4)
    snapshot = read_ring(writer.save(tmp_path / "x.ring"))
    assert_balanced(snapshot)
    assert (snapshot.written, snapshot.torn, len(snapshot.rows)) == (5, 1, 4)


def test_rows_published_out_of_order_are_found(tmp_path: Path) -> None:
    """A thread that took its number first and writes last does not hide the newer rows."""
    writer = trace_writer(capacity=CAPACITY, rows=20)
    for number in (22, 23, 25):
        writer.written = number - 1
        writer.write(**trace_values(number))
    snapshot = read_ring(writer.save(tmp_path / "x.ring"))
    assert_balanced(snapshot)
    assert snapshot.rows.numbers.tolist() == [*range(10, 21), 22, 23, 25]
    assert (snapshot.written, snapshot.torn) == (25, 2)


@pytest.mark.parametrize("laps", [1, 2, 1 << 50])
def test_a_row_of_an_impossible_number_hides_no_other(tmp_path: Path, laps: int) -> None:
    """Both its markers agree, and its slot; but no row before it is of its time."""
    writer = trace_writer(capacity=CAPACITY, rows=40)
    for number in (30, 39):
        writer.written = number + laps * CAPACITY - 1
        writer.write(**trace_values(0))
    snapshot = read_ring(writer.save(tmp_path / "x.ring"))
    assert_balanced(snapshot)
    assert snapshot.rows.numbers.tolist() == [n for n in range(25, 41) if n not in (30, 39)]
    assert (snapshot.written, snapshot.torn) == (40, 2)


@pytest.mark.parametrize("forged", [100, 251])
def test_many_impossible_numbers_hide_no_other_and_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: int
) -> None:
    """Each is of a lap of its own: only a few are asked about, however many there are."""
    writer = trace_writer(capacity=256, rows=600)
    for number in range(350, 350 + forged):
        writer.written = number + number * 256 - 1
        writer.write(**trace_values(0))
    path, asked, can_hold = writer.save(tmp_path / "x.ring"), [], RingFile.can_hold

    def count(ring: RingFile, newest: int) -> bool:
        asked.append(newest)
        return can_hold(ring, newest)

    monkeypatch.setattr(RingFile, "can_hold", count)
    snapshot = read_ring(path)
    assert len(asked) <= 3 * MOST_CONTRADICTED
    assert_balanced(snapshot)
    assert snapshot.rows.numbers.tolist() == [*range(345, 350), *range(350 + forged, 601)]


@pytest.mark.parametrize("data", [b"", b"PRBRING1", b"x" * 9000, bytes(20_000)])
def test_what_is_no_ring_is_refused(tmp_path: Path, data: bytes) -> None:
    """A file without a valid header gives a RingError."""
    path = tmp_path / "x.ring"
    path.write_bytes(data)
    with pytest.raises(RingError):
        read_ring(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """What is no file is not read at all."""
    with pytest.raises(OSError, match="not a regular file"):
        read_ring(tmp_path)


def read_damaged(path: Path, data: bytes | bytearray) -> RingSnapshot | None:
    """The snapshot of a damaged file; None where it is refused."""
    path.write_bytes(data)
    snapshot = None
    with contextlib.suppress(RingError):
        snapshot = read_ring(path)
    if snapshot is not None:
        assert_balanced(snapshot)
    return snapshot


QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@QUICK
@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255))))
def test_random_damage_never_hides_a_whole_row(
    tmp_path: Path, count: int, flips: list[tuple[int, int]]
) -> None:
    """Damaged rows are skipped and counted; those beside them are still shown."""
    writer = trace_writer(capacity=CAPACITY, rows=count)
    size = writer.layout.row_size
    data = bytearray(writer.data)
    damaged = set()
    for offset, mask in flips:
        at = offset % (CAPACITY * size)
        data[ring.HEADER_SIZE + at] ^= mask
        damaged.add(at // size)
    snapshot = read_damaged(tmp_path / "x.ring", data)
    assert snapshot is not None
    expected = {
        number
        for number in range(max(1, snapshot.written - CAPACITY + 1), count + 1)
        if number % CAPACITY not in damaged and number > count - CAPACITY
    }
    assert expected <= set(snapshot.rows.numbers.tolist())


@QUICK
@given(st.lists(st.tuples(st.integers(0, ring.HEADER_SIZE - 1), st.integers(1, 255)), max_size=6))
def test_a_damaged_header_is_refused_or_read(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    """Whatever a header says, reading ends with rows that balance or with a RingError."""
    data = bytearray(trace_writer(capacity=CAPACITY, rows=40).data)
    for offset, mask in flips:
        data[offset % 64 if offset % 2 else offset] ^= mask
    read_damaged(tmp_path / "x.ring", data)


@QUICK
@given(st.integers(0, ring.HEADER_SIZE + CAPACITY * 64), st.integers(0, 60))
def test_a_file_cut_at_any_length_gives_what_is_left(
    tmp_path: Path, length: int, count: int
) -> None:
    """Rows behind the cut are torn; those before it are shown."""
    writer = trace_writer(capacity=CAPACITY, rows=count)
    snapshot = read_damaged(tmp_path / "x.ring", bytes(writer.data)[:length])
    if snapshot is None:
        assert length < ring.HEADER_SIZE
        return
    assert_true_to_numbers(snapshot)
    slots = (length - ring.HEADER_SIZE) // writer.layout.row_size
    whole = [n for n in range(max(1, count - CAPACITY + 1), count + 1) if n % CAPACITY < slots]
    newest = max(whole, default=0)
    assert snapshot.rows.numbers.tolist() == [n for n in whole if n > newest - CAPACITY]


@pytest.fixture
def live_writer(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that overwrites a small ring without a pause."""
    path = tmp_path / "live.ring"
    process = subprocess.Popen(
        [sys.executable, str(program_path("write_ring")), str(path), "500", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process, path
    process.kill()
    process.wait()
    process.stdout.close()


LAPS, READERS, LEAST_READINGS = 100, 8, 20
LONG_S = 600


def read_by_many(path: Path, is_enough: Callable[[int, int], bool]) -> list[int]:
    """Have `READERS` threads read a ring on and on, every reading true, balanced and advancing.

    Args:
        is_enough: Asked after each reading, by rows written and readings so far, whether to end.

    Returns:
        How many readings each of them made.
    """

    def read_on() -> int:
        written = readings = 0
        while not is_enough(written, readings):
            snapshot = read_live(path)
            assert_balanced(snapshot)
            assert_true_to_numbers(snapshot)
            assert snapshot.written >= written, snapshot
            written, readings = snapshot.written, readings + 1
        return readings

    with ThreadPoolExecutor(READERS) as pool:
        return [reader.result() for reader in [pool.submit(read_on) for _ in range(READERS)]]


def books_at_the_end(writing: subprocess.Popen[str], path: Path, fault: faults.Reached) -> None:
    """End the writer, and hold what it says that it has written against what is read."""
    writing.terminate()
    assert writing.stdout is not None
    written = int(writing.stdout.readline())
    end = read_live(path)
    assert end.torn == 0
    books = len(end.rows) + end.overwritten + end.dropped
    fault.equals("written - (readable + overwritten + dropped)", 0, written - books)
    fault.equals("overwritten - (written - capacity)", 0, end.overwritten - (written - 500))


@pytest.mark.slow
@pytest.mark.fault("R5")
def test_eight_readers_of_a_ring_that_is_overwritten_all_the_time(
    live_writer: tuple[subprocess.Popen[str], Path], fault: faults.Reached
) -> None:
    """While 100 times its rows are written, every reading is true, balanced and advancing."""
    process, path = live_writer
    until = read_live(path).written + LAPS * 500
    readings = read_by_many(path, lambda rows, done: rows >= until and done >= LEAST_READINGS)
    fault.equals("readers that never saw half a row", READERS, len(readings))
    books_at_the_end(process, path, fault)


@pytest.mark.nightly
@pytest.mark.fault("S2")
def test_ten_minutes_of_readings_are_one_history(
    live_writer: tuple[subprocess.Popen[str], Path], fault: faults.Reached
) -> None:
    """Millions of rows long, no reading says less than the one before, or shows half a row."""
    process, path = live_writer
    until = time.monotonic() + LONG_S
    readings = read_by_many(path, lambda rows, done: time.monotonic() > until)
    fault.equals("readers that never saw half a row, nor fewer rows", READERS, len(readings))
    least = READERS * LEAST_READINGS
    fault.holds("readings", f">= {least}", str(sum(readings)), is_kept=sum(readings) >= least)
    books_at_the_end(process, path, fault)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_writer_that_is_killed_or_stopped_leaves_its_rows(
    live_writer: tuple[subprocess.Popen[str], Path], number: signal.Signals
) -> None:
    """What was written before the signal is readable after it, all but the row in the making."""
    process, path = live_writer
    wait_until(lambda: read_live(path).written > 2_000, "some rows")
    process.send_signal(number)
    if number == signal.SIGKILL:
        process.wait()
    else:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the stop")
    snapshot = read_live(path)
    assert_balanced(snapshot)
    assert_true_to_numbers(snapshot)
    assert len(snapshot.rows) >= 499
    assert read_live(path).written == snapshot.written


@pytest.mark.fault("R2")
def test_a_file_that_shrinks_while_it_is_read_is_no_danger(
    tmp_path: Path, fault: faults.Reached
) -> None:
    """A ring that is cut and restored without a pause gives true rows or a RingError, only that."""
    writer: RingWriter = trace_writer(capacity=4096, rows=10_000)
    path = writer.save(tmp_path / "x.ring")
    whole, cuts = bytes(writer.data), 0
    is_over = threading.Event()

    def cut_on() -> int:
        done = 0
        with path.open("r+b", buffering=0) as file:
            while not is_over.is_set():
                file.truncate(done * 4099 % len(whole))
                file.seek(0)
                file.write(whole)
                done += 1
        return done

    with ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(cut_on)
        try:
            readings = [read_if_it_is_a_ring(path) for _ in range(300)]
        finally:
            is_over.set()
        cuts = cutting.result()
    for snapshot in filter(None, readings):
        assert_balanced(snapshot)
        assert_true_to_numbers(snapshot)
    assert cuts > 0
    fault.equals("cut short while it is read: readings that ended", 300, len(readings))


def read_if_it_is_a_ring(path: Path) -> RingSnapshot | None:
    """The snapshot of a file; None where it is refused."""
    try:
        return read_live(path)
    except RingError:
        return None


def test_a_ring_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks while the agent makes the file meets no file without a header."""
    path = tmp_path / "x.ring"
    seen = []

    def encoded(*args: Any, **kwargs: Any) -> bytes:
        """Look, at the last moment before there is a header."""
        seen.append(path.exists())
        return ring.encode_header(*args, **kwargs)

    monkeypatch.setattr(writer, "encode_header", encoded)
    writer.RingWriter(path, STEPS, 16).close()
    assert seen == [False]
    assert read_ring(path).written == 0
    assert [file.name for file in tmp_path.iterdir()] == ["x.ring"]
