"""The writing end: rings, names, the memory sampler and the guard, each by itself."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.agent.sources.accelerator import Accelerator, PendingNumber, PendingNumbers
from probing.agent.sources.memory.sampler import MemorySampler
from probing.agent.sources.shared.thread_state import COLUMNS
from probing.errors import RingError
from probing.ring.format import DONE, FAILED, HEADER_SIZE, NULL_INT, NULL_NAME, OPEN, layout_of
from probing.ring.names import decode_names
from probing.ring.peek import RingPeek
from probing.ring.reader import read_ring
from probing.ring.space import limit_rings, share_space
from probing.ring.writer import Names, RingWriter
from probing.safety.guard import LIMIT, Guard
from probing.script.own_tables import ROWS, TEXT_BYTES, declaration
from probing.tables import RECORDED_TABLES, STEPS, TORCH_TRACE
from tests.harness.accelerators import NoAccelerator
from tests.harness.name_lists import encode_names
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RingWriter]:
    """A ring of python.steps that holds 64 rows."""
    made = RingWriter(tmp_path / "steps.ring", STEPS, 64)
    yield made
    made.close()


def test_rows_packed_by_hand_are_refused_another_layout() -> None:
    """Two columns of one width that change places would be recorded under each other's name."""
    require = layout_of(TORCH_TRACE).require
    require(COLUMNS)
    module, class_ = "module:I", "class:I"
    assert f"{module} {class_}" in COLUMNS
    for other in (
        COLUMNS.replace(f"{module} {class_}", f"{class_} {module}"),
        COLUMNS.replace(module, ""),
        COLUMNS.replace("depth:B", "depth:I"),
    ):
        with pytest.raises(AssertionError, match="rows of torch_trace are packed by another"):
            require(other)


def test_a_row_is_open_until_it_is_closed(writer: RingWriter, tmp_path: Path) -> None:
    """Both states are readable the moment they are written."""
    word = writer.open_row(1000, 7, 42)
    with RingPeek(tmp_path / "steps.ring") as ring:
        row = ring.row(1)
        assert row is not None
        assert (row.state, row.values["step"], row.values["duration_ns"]) == (OPEN, 7, None)
        assert row.values["start_ns"] == 1000 + writer.clock_offset_ns
        writer.close_named(word, DONE, {"duration_ns": 5, "allocated_bytes": 6})
        row = ring.row(1)
        assert row is not None
        assert (row.state, row.values["duration_ns"], row.values["allocated_bytes"]) == (DONE, 5, 6)


def test_rings_have_a_limit_together(tmp_path: Path) -> None:
    """A ring for which there is little room holds fewer rows and says so; others are refused."""
    limit_rings(1 << 20)
    made: list[RingWriter] = []
    try:
        made += [RingWriter(tmp_path / f"{n}.ring", TORCH_TRACE, 4096) for n in range(4)]
        assert [ring.problem is None for ring in made] == [True, True, True, False]
        assert "holds 2,048 rows instead of 4,096" in (made[3].problem or "")
        with pytest.raises(RingError, match="PROBING_RINGS_MIB"):  # noqa: PT012
            for number in range(4, 99):
                made.append(RingWriter(tmp_path / f"{number}.ring", TORCH_TRACE, 4096))
        assert sum(ring.stat().st_size for ring in tmp_path.glob("*.ring")) <= 1 << 20
    finally:
        limit_rings(0)
        for ring in made:
            ring.close()


@pytest.mark.parametrize("mib", [1, 2, 32])
def test_every_ring_finds_room_in_little_space(tmp_path: Path, mib: int) -> None:
    """The largest gives first, each says what it holds, and something is left for later ones."""
    wanted = [(table, 16_384) for table in RECORDED_TABLES]
    limit_rings(mib << 20)
    made: list[RingWriter] = []
    try:
        share_space(tmp_path, wanted)
        made += [RingWriter(tmp_path / f"{t.name}.ring", t, rows) for t, rows in wanted]
        assert sum(ring.stat().st_size for ring in tmp_path.glob("*.ring")) <= mib * 3 << 18
        widths = [ring.layout.row_size for ring in made]
        sizes = [(ring.slot_mask >> 2) + 1 for ring in made]
        assert min(sizes) >= 64
        given = [w * s for w, s in zip(widths, sizes, strict=True) if 64 < s < 16_384]
        assert max(given) <= 2 * min(given)
        small = [ring for ring, held in zip(made, sizes, strict=True) if held < 16_384]
        assert small
        assert all("PROBING_RINGS_MIB" in (ring.problem or "") for ring in small)
    finally:
        limit_rings(0)
        for ring in made:
            ring.close()


def test_tables_of_a_script_leave_ours_their_room(tmp_path: Path) -> None:
    """However many rows they want, and though they come first, every table of ours is made."""
    wanted = [(table, 16_384) for table in RECORDED_TABLES]
    limit_rings(8 << 20)
    made: list[RingWriter] = []
    try:
        for name in ("first", "second"):
            table = declaration(
                name, {"n": int}, doc="", rows=1 << 24, text_bytes=8, origin="script"
            ).declared
            made.append(RingWriter(tmp_path / f"{name}.ring", table, 1 << 24))
        own = sum(ring.stat().st_size for ring in tmp_path.glob("*.ring"))
        assert 1 << 20 <= own <= 2 << 20
        share_space(tmp_path, wanted)
        made += [RingWriter(tmp_path / f"{t.name}.ring", t, rows) for t, rows in wanted]
        all_of_them = sum(ring.stat().st_size for ring in tmp_path.glob("*.ring"))
        assert all_of_them <= 6 << 20
    finally:
        limit_rings(0)
        for ring in made:
            ring.close()


def test_many_tables_of_a_script_all_find_room(tmp_path: Path) -> None:
    """Two of the default size hold all their rows; the more there are, the fewer the next hold."""
    limit_rings(64 << 20)
    made: list[RingWriter] = []
    try:
        for name in "abcdefgh":
            columns = {"n": int, "note": str}
            declared = declaration(
                name, columns, doc="", rows=ROWS, text_bytes=TEXT_BYTES, origin="script"
            )
            made.append(RingWriter(tmp_path / f"{name}.ring", declared.declared, ROWS))
        held = [(ring.slot_mask >> 2) + 1 for ring in made]
        assert held[:2] == [ROWS, ROWS]
        assert held == sorted(held, reverse=True)
        assert min(held) >= 64
        assert sum(ring.stat().st_size for ring in tmp_path.glob("*.ring")) <= 16 << 20
    finally:
        limit_rings(0)
        for ring in made:
            ring.close()


def test_rings_take_a_small_share_of_what_is_free(tmp_path: Path) -> None:
    """Where 64 MiB are free for all ranks and loaders, every table holds fewer rows."""
    told = limit_rings(64 << 20, free_bytes=64 << 20) or ""
    try:
        ring = RingWriter(tmp_path / "torch_trace.ring", TORCH_TRACE, 65_536)
        few = RingWriter(tmp_path / "few.ring", TORCH_TRACE, 16)
        assert told.startswith("every table holds 1/8 of its rows, because only 64.0 MiB are free")
        assert (ring.slot_mask >> 2, few.slot_mask >> 2) == (8191, 15)
        assert ring.problem is None
        assert few.problem is None
    finally:
        assert limit_rings(0) is None
        ring.close()
        few.close()


def test_the_newest_row_is_found_at_every_fill(writer: RingWriter, tmp_path: Path) -> None:
    """Empty, half full, just full, and wrapped many times: the last row is the last written."""
    with RingPeek(tmp_path / "steps.ring") as ring:
        assert ring.newest_seq() == 0
        for number in range(1, 300):
            writer.close_named(writer.open_row(number, number, 0), DONE, {})
            assert ring.newest_seq() == number


def test_closing_an_overwritten_row_harms_no_other(writer: RingWriter, tmp_path: Path) -> None:
    """A call that outlived the whole ring is not written over the row that took its place."""
    word = writer.open_row(1, 1, 0)
    for number in range(2, 100):
        writer.close_named(writer.open_row(number, number, 0), DONE, {})
    writer.close_named(word, FAILED, {"duration_ns": 9, "allocated_bytes": 9})
    with RingPeek(tmp_path / "steps.ring") as ring:
        rows = [ring.row(seq) for seq in range(99 - 63, 100)]
    assert [row.seq for row in rows if row] == list(range(36, 100))


def test_no_space_is_a_clear_refusal(tmp_path: Path) -> None:
    """A file that cannot be reserved whole is refused at once and leaves nothing behind."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "from probing.ring.writer import RingWriter\n"
        "from probing.tables import TORCH_TRACE\n"
        "from probing.errors import RingError\n"
        "try:\n    RingWriter(Path(sys.argv[1]), TORCH_TRACE, 1 << 20)\n"
        "except RingError as error:\n    print(error)\n"
    )
    path = tmp_path / "torch_trace.ring"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout.startswith(f"ring torch_trace: {HEADER_SIZE + (64 << 20):,} bytes in"), (
        done.stderr
    )
    assert os.strerror(errno.EFBIG) in done.stdout
    assert not path.exists()


def test_written_pages_leave_the_resident_set(tmp_path: Path) -> None:
    """A ring larger than what may stay resident is written whole without growing the process."""
    path = tmp_path / "torch_trace.ring"
    ring = RingWriter(path, TORCH_TRACE, 1 << 17)
    for number in range(1 << 17):
        word = ring.open_row(1, number, 0, 0, 0, 0, 0, 0, 0, 0)
        if number % 1024 == 0:
            ring.release_pages(word)
    maps = Path("/proc/self/smaps").read_text()
    block = maps[maps.index(str(path)) :]
    resident_kib = int(block[block.index("Rss:") + 4 :].split()[0])
    ring.close()
    assert resident_kib < 1.5 * 16384 * 64 / 1024


def test_rows_are_aligned_and_whole() -> None:
    """No two columns of a row overlap, and each lies on a multiple of its width."""
    for table in RECORDED_TABLES:
        layout = layout_of(table)
        taken: set[int] = set(range(8)) | set(range(layout.row_size - 8, layout.row_size))
        for field in (*layout.opening, *layout.closing):
            width = {"q": 8, "d": 8, "I": 4, "B": 1}[field.code]
            place = set(range(field.offset, field.offset + width))
            assert field.offset % width == 0
            assert not place & taken
            taken |= place
        assert layout.open_struct.size == layout.row_size


def test_names_are_given_once(tmp_path: Path) -> None:
    """The same name has the same number, and the file lists them in order."""
    names = Names(tmp_path / "names")
    numbers = [names.intern(name) for name in ("a", "b", "ä" * 600, "a", "b")]
    names.close()
    assert numbers == [1, 2, 3, 1, 2]
    listed = decode_names((tmp_path / "names").read_bytes())
    assert listed[:3] == [None, "a", "b"]
    assert listed[3] == "ä" * 512


def test_a_file_of_the_program_is_not_taken_for_ours(tmp_path: Path) -> None:
    """Where the program has closed ours by its number, the next file with that is left alone."""
    names = Names(tmp_path / "names")
    names.intern("a")
    (tmp_path / "checkpoint").write_bytes(b"x" * 1000)
    with (tmp_path / "checkpoint").open("r+b") as file:
        # At once: whatever else this process opens between would get the number.
        fd = os.dup2(file.fileno(), names._fd, inheritable=False)
    try:
        assert names.intern("b") == NULL_NAME
        assert names.problem is not None
        assert "the program has closed" in names.problem
        names.close()
        assert os.fstat(fd).st_size == 1000
    finally:
        os.close(fd)
    assert (tmp_path / "checkpoint").read_bytes() == b"x" * 1000


def test_names_of_many_threads_stay_in_order(tmp_path: Path) -> None:
    """Threads that meet new names at the same time agree on numbers, and the file with them."""
    names = Names(tmp_path / "names")
    given: dict[str, set[int]] = {f"name {i}": set() for i in range(400)}

    def meet() -> None:
        for name, numbers in given.items():
            numbers.add(names.intern(name))

    threads = [threading.Thread(target=meet) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names.close()
    listed = decode_names((tmp_path / "names").read_bytes())
    assert len(listed) == 401
    assert all({listed[n] for n in numbers} == {name} for name, numbers in given.items())


def test_a_full_list_of_names_is_told(tmp_path: Path) -> None:
    """What stands in it keeps its number, what does not is NULL, and that is no secret."""
    names = Names(tmp_path / "names")
    numbers = [names.intern(f"{i:01024}") for i in range((16 << 20) // 1024)]
    assert (numbers[0], numbers[-1], names.intern(f"{0:01024}")) == (1, 0, 1)
    assert names.lost == numbers.count(0) == len(numbers) - max(numbers)
    assert names.problem is not None
    assert names.problem.endswith("their list has 16 MiB, and takes no more")
    names.close()


def test_a_name_that_is_cut_short_ends_the_list() -> None:
    """Whatever was being appended when the process died is not half a name."""
    data = encode_names(["whole", "cut"])
    for end in range(len(encode_names(["whole"])), len(data)):
        assert decode_names(data[:end]) == [None, "whole"]


class FakeAccelerator(NoAccelerator):
    """Stands in for the CUDA allocator and reports the figures it is given."""

    def __init__(self, *figures: int | None) -> None:
        self._figures = list(figures)

    def allocated_bytes(self) -> int | None:
        """The next figure."""
        return self._figures.pop(0)

    def copy_number(self, tensor: object) -> PendingNumber | None:
        """No number is asked for here."""
        raise AssertionError(tensor)

    def mark(self, device: object = None) -> object | None:
        """It marks nothing."""
        return None

    def between(self, first: object, last: object) -> PendingNumber:
        """Nothing is marked here."""
        raise AssertionError(first, last)

    def copy_numbers(self, tensor: object) -> PendingNumbers | None:
        """Nor are several."""
        raise AssertionError(tensor)


def test_an_accelerators_bytes_go_before_the_resident_set() -> None:
    """With an accelerator in use its allocator's figure is taken, else the resident set."""
    now = iter(range(0, 10**9, 1000))
    sampler = MemorySampler(FakeAccelerator(512, 1_073_741_824, None), clock=lambda: next(now))
    try:
        assert sampler.bytes == NULL_INT
        sampler.sample()
        assert sampler.bytes == 512
        sampler.sample()
        assert sampler.bytes == 1_073_741_824
        sampler.sample()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident = pages * resource.getpagesize()
        assert abs(sampler.bytes - resident) < resident / 2
    finally:
        sampler.close()


def test_a_costly_sample_is_taken_less_often() -> None:
    """The next sample is due no sooner than 250 times what this one cost, or 4000 times."""
    times = iter((0, 20_000, 1_000_000, 1_020_000))
    sampler = MemorySampler(FakeAccelerator(1, 1), clock=lambda: next(times))
    sampler.sample()
    assert sampler.due_ns == 20_000 + 250 * 20_000
    sampler.step_ended(0)
    sampler.sample()
    sampler.close()
    assert sampler.due_ns == 1_020_000 + 4000 * 20_000


def test_samples_are_taken_often_where_memory_may_grow() -> None:
    """Beyond what was ever in use, and for a batch of another shape, until the step ends."""
    cost = 20_000
    times = (n * 1_000_000 + end for n in range(9) for end in (0, cost))
    figures = (1000, 500, 1001, 1020, 900, 900)
    sampler = MemorySampler(FakeAccelerator(*figures), clock=lambda: next(times))

    def take() -> int:
        sampler.sample()
        return (sampler.due_ns - sampler.taken_ns) // cost

    assert take() == 250
    sampler.step_ended(0)
    grown = [sampler.has_grown]
    assert [take(), take(), take(), take()] == [4000, 4000, 250, 250]
    sampler.step_ended(0)
    grown.append(sampler.has_grown)
    assert take() == 4000
    sampler.step_ended(0)
    assert [*grown, sampler.has_grown] == [True, True, False]
    sampler.hurry()
    assert sampler.due_ns == sampler.taken_ns + 1000 * cost
    sampler.close()


def test_a_sample_from_within_a_step_of_a_device_is_none_of_its_end() -> None:
    """The next is taken there once half of the time to it is over."""
    times = (n * 10_000_000 + end for n in range(9) for end in (0, 20_000))
    sampler = MemorySampler(FakeAccelerator(3000, 1000, None), clock=lambda: next(times))
    sampler.sample()  # due again 5 ms later
    assert sampler.step_ended(1_000_000) == NULL_INT
    assert sampler.step_ended(4_000_000) == 1000
    sampler.sample()
    assert sampler.step_ended(20_050_000) == sampler.bytes != NULL_INT
    sampler.close()


def test_what_a_sample_costs_once_does_not_stop_the_next_for_long() -> None:
    """A sample that took a second, as where the process was stopped, is followed by another."""
    times = iter((0, 1_000_000_000))
    sampler = MemorySampler(FakeAccelerator(1), clock=lambda: next(times))
    sampler.sample()
    sampler.close()
    assert sampler.due_ns == 1_250_000_000


@pytest.mark.gpu
@pytest.mark.torch
def test_cuda_bytes_are_the_allocators() -> None:
    """On a real device the figure is torch's own, and asking does not initialise CUDA."""
    import torch

    assert not torch.cuda.is_initialized()
    assert Accelerator().allocated_bytes() is None
    assert not torch.cuda.is_initialized()
    kept = torch.zeros(1 << 20, device="cuda")
    assert Accelerator().allocated_bytes() == torch.cuda.memory_allocated() >= kept.nbytes


def test_the_guard_switches_off_after_three_faults() -> None:
    """Faults are counted, the third switches off, and none ever reaches the caller."""
    switched: list[bool] = []
    guard = Guard("source", lambda: switched.append(True))

    def fail() -> None:
        raise ValueError("told once")

    assert guard.problem is None
    for _ in range(LIMIT + 2):
        guard.run(fail)
    assert switched == [True]
    assert guard.problem == (
        "source source failed 5 times, last with ValueError: told once; it is switched off"
    )


def test_a_guard_survives_its_own_switch() -> None:
    """Even switching off may fail without harm."""

    def fail() -> None:
        raise OSError("no")

    guard = Guard("source", fail)
    for _ in range(LIMIT):
        guard.run(fail)
    assert guard.faults == LIMIT + 1


def test_safe_points_hold_one_visitor_after_the_other() -> None:
    """Two visitors of one safe point are served in turn; withdrawing frees the thread."""
    points = SafePoints()
    points.stepping = True
    visits = [points.request(30.0) for _ in range(2)]
    trainer = threading.Thread(target=points.step_ended)
    points.root_called()  # a training's root is no safe point while nobody closed the way back
    trainer.start()
    visits[0].wait_held(30.0)
    assert visits[0].is_held()
    assert not visits[1].is_held()
    points.withdraw(visits[0])
    visits[1].wait_held(30.0)
    assert visits[1].is_held()
    points.withdraw(visits[1])
    trainer.join(30.0)
    assert not trainer.is_alive()
    assert not points.waiting


def test_peeking_at_nonsense_tells_it(tmp_path: Path) -> None:
    """A file that is no ring, or is cut short, is an error with a sentence, never a crash."""
    path = tmp_path / "steps.ring"
    for data in (b"", b"x" * 100, b"PRBRING1" + b"\xff" * 2 * HEADER_SIZE):
        path.write_bytes(data)
        with pytest.raises(RingError, match=r"ring steps\.ring"):
            RingPeek(path)
    ring = RingWriter(path, STEPS, 64)
    ring.open_row(1, 1, 1)
    ring.close()
    os.truncate(path, HEADER_SIZE + 10)
    with RingPeek(path) as peek:
        assert peek.row(1) is None
        assert peek.newest_seq() == 0


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 200])
def test_who_comes_next_goes_on_with_the_record(rows: int, tmp_path: Path) -> None:
    """A process has one record: rows and names are numbered behind those of the agent before."""
    path = tmp_path / "steps.ring"
    for number in range(1, rows + 1):
        if number in {1, 40}:  # two agents so far
            writer, names = RingWriter(path, STEPS, 64), Names(tmp_path / "names")
        writer.open_row(number, number, 42)
        names.intern(f"name {number}")
    writer, names = RingWriter(path, STEPS, 64), Names(tmp_path / "names")
    assert writer.newest_of("step") == (rows or None)
    writer.open_row(rows + 1, rows + 1, 42)
    found = read_ring(path)
    assert found.rows.numbers.tolist() == list(range(max(1, rows - 62), rows + 2))
    assert found.rows["step"].tolist() == found.rows.numbers.tolist()
    assert (names.goes_on, found.torn) == (rows > 0, 0)
    numbered = [names.intern(f"name {number}") for number in range(1, rows + 2)]
    assert numbered == list(range(1, rows + 2))
    told = decode_names((tmp_path / "names").read_bytes())
    assert told == [None, *(f"name {number}" for number in numbered)]


def damage(path: Path) -> None:
    """Another byte in the header."""
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"?" + data[101:])


def move_row(path: Path) -> None:
    """A row's number where another one belongs."""
    data, at = path.read_bytes(), HEADER_SIZE + layout_of(STEPS).row_size
    path.write_bytes(data[:at] + (8).to_bytes(8, "little") + data[at + 8 :])


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "a damaged header": damage,
    "a row in another's place": move_row,
    "cut short": lambda path: os.truncate(path, HEADER_SIZE + 640),
    "another table": lambda path: RingWriter(path, TORCH_TRACE, 64).close(),
    "a link": lambda path: os.symlink(path.rename(path.with_name("there")), path),
    "too few rows": lambda _: None,
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_what_is_not_as_it_was_written_is_begun_anew(what: str, tmp_path: Path) -> None:
    """Nothing is written into a file of which this would not be the next row."""
    path = tmp_path / "steps.ring"
    writer = RingWriter(path, STEPS, 64)
    writer.open_row(1, 1, 42)
    writer.close()
    UNUSABLE[what](path)
    writer = RingWriter(path, STEPS, 128 if what == "too few rows" else 64)
    assert writer.newest_word() == 0
    writer.open_row(2, 2, 42)
    assert (path.is_symlink(), read_ring(path).rows["step"].tolist()) == (False, [2])


def test_a_list_of_names_that_is_cut_is_begun_anew(tmp_path: Path) -> None:
    """Half a name at its end would shift all that come after it."""
    names = Names(tmp_path / "names")
    names.intern("one")
    names.close()
    os.truncate(tmp_path / "names", 6)
    names = Names(tmp_path / "names")
    assert (names.goes_on, names.intern("two")) == (False, 1)
    assert decode_names((tmp_path / "names").read_bytes()) == [None, "two"]
