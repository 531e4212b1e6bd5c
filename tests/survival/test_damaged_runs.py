"""What a real run left, damaged in every way: read by everything of ours that reads it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import probing
from probing.agent.crash.crashes import _put
from probing.errors import InternalError, ProbingError, RingError
from probing.messages.codec import encode
from probing.messages.common import ThreadStack
from probing.postmortem.crashes import CrashRecord, read_crash
from probing.ring import format as ring, names
from probing.ring.arrow_tables import RecordedTable, to_arrow
from probing.ring.peek import table_status
from probing.ring.reader import RingSnapshot, read_ring
from probing.rundir.folders import ProcessFolder, folder_at
from probing.tables import STEPS, TORCH_TRACE, Table
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


MUTATIONS, MUTATIONS_BY_NIGHT, ASKED_WHOLE = 200, 500, 20
"""How many, in each of twenty tests by night, and one in how many is asked by a statement, which
takes longer."""
TABLES = (TORCH_TRACE, STEPS)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The bytes of a file with something wrong in them."""
    at = draw.randrange(len(data))
    span = draw.randrange(1, 64)
    return draw.choice(
        (
            data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :],
            data[:at] + draw.randbytes(span) + data[at + span :],
            data[:at],
            data[:at] + data[at + span :],
            data[:at] + data[at : at + span] + data[at:],
            data[:at] + bytes(span) + data[at + span :],
        )
    )


@pytest.mark.fault("R2")
@pytest.mark.parametrize(
    ("count", "seed"),
    [
        (MUTATIONS, 7),
        *(pytest.param(MUTATIONS_BY_NIGHT, seed, marks=pytest.mark.nightly) for seed in range(20)),
    ],
)
def test_a_mutated_record_is_right_or_said_to_be_damaged(
    count: int, seed: int, run: ProcessFolder, tmp_path: Path, fault: faults.Reached
) -> None:
    """The names, what describes rows, the card, how it ended: no other answer without a word.

    The values of rows have no checksum, so that what is mutated of a ring is its header.
    """
    path = tmp_path / "home" / run.path.name
    shutil.copytree(run.path, path, ignore=lambda _, names: [n for n in names if n == "sock"])
    ended = ProcessFolder(path, run.pid, run.start_time)
    _put(ended.exception, json.loads(encode(ENDED)))
    files = [path / "names", path / "torch_trace.ring", path / "steps.ring", path / "card.json"]
    files += [ended.exception]
    good = [answer_to(path, table, is_whole=True) for table in TABLES]
    assert good == [answer_to(path, table) for table in TABLES]
    assert all(rows and not notes for rows, notes in good)
    card = ended.read_card()
    assert card is not None
    assert read_crash(ended) == ENDED
    draw, unsaid, faulty = random.Random(seed), [], []
    for number in range(count):
        file = draw.choice(files)
        data = file.read_bytes()
        file.chmod(0o600)
        head = data[: ring.HEADER_SIZE] if file.suffix == ".ring" else data
        file.write_bytes(mutated(head, draw) + data[len(head) :])
        for table, (rows, _) in zip(TABLES, good, strict=True):
            try:
                found, notes = answer_to(path, table, is_whole=not number % ASKED_WHOLE)
            except ProbingError as error:
                if isinstance(error, InternalError):
                    faulty.append((number, file.name, str(error)))
                continue
            except Exception as error:  # noqa: BLE001 - a finding, whatever it is
                faulty.append((number, file.name, repr(error)))
                continue
            if found != rows and not notes:
                unsaid.append((number, file.name, table.name))
        if ended.read_card() not in (card, None):
            unsaid.append((number, file.name, "card"))
        crash = read_crash(ended)
        if crash != ENDED and not (crash and "damaged" in crash.message):
            unsaid.append((number, file.name, "crash"))
        file.write_bytes(data)
    fault.equals(f"{count} mutations, seed {seed}: answers changed without a word", [], unsaid)
    fault.equals(f"{count} mutations, seed {seed}: faults of ours", [], faulty)


ENDED = CrashRecord(
    when_ns=4_000_000_000_000_000_000,
    kind="exception",
    type="RuntimeError",
    message="shape '[4, 8]' is invalid for input of size 31",
    threads=(ThreadStack(thread_id=3, name="MainThread", is_main=True, frames=()),),
    step=17,
)


def answer_to(path: Path, table: Table, *, is_whole: bool = False) -> tuple[list[str], list[str]]:
    """The rows of a table, and what was said beside them; by a statement where it is whole."""
    if is_whole:
        process = probing.connect(str(path))
        rows = process.query(f"SELECT * FROM {table.full_name} ORDER BY seq").to_pylist()
        return [repr(row) for row in rows], process.notes()
    notes: list[str] = []
    folder = folder_at(path)
    assert folder is not None
    rows = RecordedTable(table, folder, notes).load(None).to_pylist()
    return [repr(row) for row in rows], notes
