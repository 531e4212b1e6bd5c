"""What a real run left, damaged in every way: read by everything of ours that reads it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing import names, ring
from probing.arrow_tables import to_arrow
from probing.errors import RingError
from probing.ring_peek import table_status
from probing.ring_reader import RingSnapshot, read_ring
from probing.rundir import ProcessFolder
from probing.tables import TORCH_TRACE
from tests import faults
from tests.harness.targets import start_program

pytestmark = pytest.mark.torch

FLIPS = 10_000
FLIPS_PER_READING = 40
CUT_EVERY = 512


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessFolder]:
    """The folder of a training that has been killed, its rings cut down to what is in use."""
    cwd = tmp_path_factory.mktemp("run")
    target = start_program(
        "torch_features", "training", home=cwd / "home", cwd=cwd, PROBING_TRACE_ROWS="64"
    )
    try:
        target.wait_for_output("done")
        target.kill()
        yield target.folder
    finally:
        target.reap()


@pytest.fixture
def damaged(run: ProcessFolder, tmp_path: Path) -> ProcessFolder:
    """A folder with copies of the run's trace and names, to be damaged."""
    path = tmp_path / run.path.name
    path.mkdir()
    for name in ("torch_trace.ring", "names", "card.json"):
        shutil.copy(run.path / name, path / name)
    return ProcessFolder(path, run.pid, run.start_time)


def read_all(folder: ProcessFolder) -> RingSnapshot | None:
    """What the trace holds, by all that reads it; None where the reader refuses it by name."""
    assert table_status(folder, TORCH_TRACE).name == TORCH_TRACE.name
    texts = names.decode_names(folder.names.read_bytes())
    try:
        snapshot = read_ring(folder.ring(TORCH_TRACE.name))
    except RingError:
        return None
    to_arrow(snapshot, texts, None).validate(full=True)
    assert snapshot.written == len(snapshot.rows) + snapshot.overwritten + snapshot.torn
    assert min(snapshot.overwritten, snapshot.torn) >= 0
    return snapshot


def rows_by_number(snapshot: RingSnapshot) -> dict[int, tuple[object, ...]]:
    """Each row as it is stored, by its number."""
    columns = [column.view(f"u{column.itemsize}") for column in snapshot.rows.columns.values()]
    stored = zip(snapshot.rows.states, *columns, strict=True)
    return dict(zip(snapshot.rows.numbers.tolist(), stored, strict=True))


@pytest.mark.fault("R2")
def test_flipped_bits_touch_no_other_row(damaged: ProcessFolder, fault: faults.Reached) -> None:
    """10,000 of them: the rows beside are shown as they were, those without a number are torn.

    A row has no checksum, which would cost more than the row: a flipped bit of a value is a wrong
    value.
    """
    path = damaged.ring(TORCH_TRACE.name)
    whole = read_all(damaged)
    assert whole is not None
    good, data = rows_by_number(whole), path.read_bytes()
    assert len(good) == whole.header.capacity
    size, draw = whole.header.row_size, random.Random(0)
    lost = hidden = changed = uncounted = 0
    for _ in range(FLIPS // FLIPS_PER_READING):
        bad, hit = bytearray(data), set()
        for _ in range(FLIPS_PER_READING):
            at = draw.randrange(len(data) - ring.HEADER_SIZE)
            bad[ring.HEADER_SIZE + at] ^= 1 << draw.randrange(8)
            hit.add(at // size)
        path.write_bytes(bad)
        snapshot = read_all(damaged)
        if snapshot is None:
            lost += 1
            continue
        found = rows_by_number(snapshot)
        beside = {number for number in good if number % len(good) not in hit}
        hidden += len(beside - found.keys())
        changed += sum(found[number] != good[number] for number in beside & found.keys())
        newest_is_beside = whole.written in beside
        uncounted += newest_is_beside and snapshot.torn != len(good) - len(found)
    fault.equals("10,000 flips: readings refused", 0, lost)
    fault.equals("10,000 flips: rows hidden that were not hit", 0, hidden)
    fault.equals("10,000 flips: rows changed that were not hit", 0, changed)
    fault.equals("10,000 flips: readings with damaged rows not counted", 0, uncounted)


@pytest.mark.fault("R2")
def test_flipped_bits_of_a_header_are_refused_by_name(
    damaged: ProcessFolder, fault: faults.Reached
) -> None:
    """Whichever bit of what describes the rows it is; the others only change a count."""
    path = damaged.ring(TORCH_TRACE.name)
    data = path.read_bytes()
    draw = random.Random(1)
    readings = 0
    for at in [*range(64 * 8), *(draw.randrange(64 * 8, 8 * 4096) for _ in range(100))]:
        bad = bytearray(data)
        bad[at // 8] ^= 1 << at % 8
        path.write_bytes(bad)
        read_all(damaged)
        readings += 1
    fault.equals("a flipped bit of the header: readings that ended", 612, readings)


@pytest.mark.fault("R2")
def test_a_ring_cut_short_gives_what_is_left(damaged: ProcessFolder, fault: faults.Reached) -> None:
    """At every 512 bytes: the rows before the cut are shown unchanged, those behind are torn."""
    path = damaged.ring(TORCH_TRACE.name)
    whole = read_all(damaged)
    assert whole is not None
    good, data = rows_by_number(whole), path.read_bytes()
    wrong = refused = 0
    cuts = range(0, len(data), CUT_EVERY)
    for length in cuts:
        path.write_bytes(data[:length])
        snapshot = read_all(damaged)
        if snapshot is None:
            refused += length >= ring.HEADER_SIZE
            continue
        slots = (length - ring.HEADER_SIZE) // whole.header.row_size
        left = {n: row for n, row in good.items() if n % len(good) < slots}
        newest = max(left, default=0)
        left = {n: row for n, row in left.items() if n > newest - len(good)}
        wrong += rows_by_number(snapshot) != left
    fault.equals(f"cut at {len(cuts)} lengths: refused though its header is whole", 0, refused)
    fault.equals(f"cut at {len(cuts)} lengths: rows other than those left", 0, wrong)


ODD_FILES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda data: bytes(len(data)),
    "nothing": lambda _: b"",
    "a foreign version": lambda data: b"PRBRING9" + data[8:],
    "its header only": lambda data: data[: ring.HEADER_SIZE],
    "a zeroed row area": lambda data: data[: ring.HEADER_SIZE].ljust(len(data), b"\0"),
}
EMPTY = frozenset({"its header only", "a zeroed row area"})


@pytest.mark.fault("R2")
@pytest.mark.parametrize("kind", ODD_FILES)
def test_what_is_no_ring_is_refused_or_empty(
    kind: str, damaged: ProcessFolder, fault: faults.Reached
) -> None:
    """By the reader, and by what glances at a ring for `probing list` and `probing tables`."""
    path = damaged.ring(TORCH_TRACE.name)
    path.write_bytes(ODD_FILES[kind](path.read_bytes()))
    snapshot = read_all(damaged)
    expected = "no rows" if kind in EMPTY else "refused"
    got = "refused" if snapshot is None else "no rows" if not len(snapshot.rows) else "rows"
    fault.equals(f"a ring of {kind}", expected, got)
    status = table_status(damaged, TORCH_TRACE)
    assert (status.problem is None) == (kind in EMPTY)


@pytest.mark.fault("R2")
def test_damaged_names_lead_nowhere(damaged: ProcessFolder, fault: faults.Reached) -> None:
    """A bit of every byte of the names file flipped, and cut at every byte: rows stay rows."""
    data = damaged.names.read_bytes()
    whole = read_ring(damaged.ring(TORCH_TRACE.name))
    lost = 0
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        damaged.names.write_bytes(bad)
        snapshot = read_all(damaged)
        lost += snapshot is None or len(snapshot.rows) != len(whole.rows)
    for length in range(len(data)):
        damaged.names.write_bytes(data[:length])
        lost += read_all(damaged) is None
    fault.equals("a damaged names file: readings that lost rows", 0, lost)
