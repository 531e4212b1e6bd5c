"""What goes into a history, once, and what is told of the rest."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from probing.cli.commands.export import _go_on, _Kept
from probing.cli.target import Target
from probing.client.listing import summarize
from probing.diagnosis.runs.kept import find_kept
from probing.errors import DamagedHistory, HistoryBusy, HistoryUnwritable
from probing.history import export
from probing.history.books import Books
from probing.history.compaction.folder import compact_folder
from probing.history.compaction.keep import Keep
from probing.history.export import Exported, export_process
from probing.history.files import locked
from probing.history.layout import quoted, state_file, unquoted
from probing.history.naming import run_of
from probing.history.scanning.chosen import EVERY_RANK
from probing.linux import process
from probing.messages.codec import with_checksum
from probing.ring.format import NULL_INT
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.rundir.project import project_of
from probing.tables import TABLES_BY_NAME
from tests.harness.cards import card_of
from tests.harness.ring_writer import RingWriter, trace_values, trace_writer

pytestmark = pytest.mark.anypython

Made = Callable[..., ProcessFolder]
Ask = Callable[[str], list[dict[str, Any]]]
DAY_NS = 86_400 * 10**9


def counts(ask: Ask) -> tuple[int, ...]:
    """The books of python.torch_trace."""
    sql = "SELECT exported, overwritten, damaged, waiting FROM exports WHERE name = 'torch_trace'"
    (row,) = ask(sql)
    return tuple(row.values())


def numbers(ask: Ask) -> list[int]:
    """The rows of python.torch_trace that came out."""
    return [row["seq"] for row in ask("SELECT seq FROM torch_trace ORDER BY seq")]


def test_a_second_export_goes_on_where_the_first_ended(ended: Made, root: Path, ask: Ask) -> None:
    """Rows that came since are there once, and those that were overwritten meanwhile counted."""
    folder, writer = ended(), trace_writer(capacity=64, rows=40)
    writer.save(folder.ring("torch_trace"))
    export_process(folder, root)
    export_process(folder, root)
    assert (numbers(ask), counts(ask)) == (list(range(1, 41)), (40, 0, 0, 0))
    for number in range(41, 121):
        writer.write(**trace_values(number))
    writer.save(folder.ring("torch_trace"))
    export_process(folder, root)
    assert numbers(ask) == [*range(1, 41), *range(57, 121)]
    assert counts(ask) == (104, 16, 0, 0)


def test_values_come_out_as_they_went_in(ended: Made, root: Path, ask: Ask) -> None:
    """Texts, times, NULLs and the names of the run are those of the record; secrets stay there."""
    started = ("python", "train.py", "+hub.token=xyz", "--api-key", "xyz")
    folder = ended(job="llm", rank=3, world_size=8, command=started)
    trace_writer(capacity=64, rows=5).save(folder.ring("torch_trace"))
    exported = export_process(folder, root, project="gpt")
    (row,) = ask("FROM torch_trace WHERE seq = 5")
    whose = [row[name] for name in ("run", "project", "job", "rank", "host")]
    assert whose == [exported.run, "gpt", "llm", 3, "node1"]
    assert (row["module"], row["class"], row["day"]) == ("head", "Block", "2023-11-14")
    assert (row["duration_ns"], row["start_ns"]) == (50, 1_700_000_000_000_005_000)
    (who,) = ask("FROM processes")
    assert (who["world_size"], who["has_ended"]) == (8, True)
    assert who["command"] == "python train.py '+hub.token=***' --api-key '***'"
    assert summarize(folder).command == "python train.py +hub.token=*** --api-key ***"
    assert "orderly" in who["ending"]


def test_rows_that_may_change_wait(tmp_path: Path, root: Path, ask: Ask) -> None:
    """Of a live process an open row, and one of the newest steps, come with a later export."""
    pid = os.getpid()
    started = process.start_time(pid)
    assert started is not None
    folder = RunDirectory(tmp_path / "home").create_folder(pid, started)
    folder.write_card(card_of(pid, started))
    steps = RingWriter(TABLES_BY_NAME["steps"], capacity=64)
    for step in range(1, 21):
        steps.write(step=step, start_ns=step * 1000, loss=0.5)
    steps.save(folder.ring("steps"))
    writer = trace_writer(capacity=64, rows=10)
    opened = writer.open(**trace_values(11))
    writer.write(**trace_values(12))
    writer.save(folder.ring("torch_trace"))
    export_process(folder, root)
    assert [row["step"] for row in ask("SELECT step FROM steps ORDER BY step")] == [*range(1, 13)]
    assert numbers(ask) == [*range(1, 11), 12]
    assert counts(ask) == (11, 0, 0, 1)
    writer.close(opened, failed=False, **trace_values(11))
    writer.save(folder.ring("torch_trace"))
    export_process(folder, root)
    assert (numbers(ask), counts(ask)) == ([*range(1, 13)], (12, 0, 0, 0))


def test_the_open_rows_of_an_ended_process_are_kept(ended: Made, root: Path, ask: Ask) -> None:
    """Where it was when it ended stays on record."""
    folder, writer = ended(), trace_writer(capacity=64, rows=2)
    writer.open(**trace_values(3))
    writer.save(folder.ring("torch_trace"))
    export_process(folder, root)
    assert ask("SELECT seq, duration FROM torch_trace WHERE duration IS NULL") == [
        {"seq": 3, "duration": None}
    ]


def test_damaged_rows_are_counted(ended: Made, root: Path, ask: Ask) -> None:
    """A row of an ended process that cannot be read is left out, and told of at every export."""
    folder, writer = ended(), trace_writer(capacity=64, rows=9)
    path = writer.save(folder.ring("torch_trace"))
    data = bytearray(path.read_bytes())
    at = writer._offset(4)
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    for _ in range(2):
        export_process(folder, root)
        assert numbers(ask) == [1, 2, 3, 5, 6, 7, 8, 9]
        assert counts(ask) == (8, 0, 1, 0)


def test_damaged_names_are_told(ended: Made, root: Path) -> None:
    """Texts that are not known any more are NULL, and counted."""
    folder = ended()
    folder.names.unlink()
    trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
    (note,) = export_process(folder, root).notes
    assert note == "the list of names is damaged: 27 texts of torch_trace are NULL"


def test_a_ring_that_was_begun_anew_is_noticed(ended: Made, root: Path, ask: Ask) -> None:
    """Rows that count from 1 again are not taken for those that are there already."""
    folder = ended()
    trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
    export_process(folder, root)
    other = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=64)
    for number in range(1, 13):
        other.write(**{**trace_values(number), "start_ns": 5_000_000 + number})
    other.save(folder.ring("torch_trace"))
    exported = export_process(folder, root)
    assert exported.notes == ("the record of torch_trace was begun anew, and counts from 1 again",)
    assert counts(ask) == (21, 0, 0, 0)
    assert len(numbers(ask)) == 21


def test_a_damaged_ring_is_told_and_the_others_are_kept(ended: Made, root: Path, ask: Ask) -> None:
    """What cannot be read of one table costs no other."""
    folder = ended()
    folder.ring("steps").write_bytes(b"no ring at all")
    trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
    exported = export_process(folder, root)
    assert ["the ring of steps cannot be read" in note for note in exported.notes] == [True]
    assert len(numbers(ask)) == 9


def test_without_its_state_an_export_goes_on_from_the_files(
    ended: Made, root: Path, ask: Ask
) -> None:
    """The files of rows say themselves what is there."""
    folder = ended()
    trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
    exported = export_process(folder, root)
    state = state_file(root, exported.process)
    for text in (
        "{",
        "[]",
        '{"run": "r", "project": "p", "tables": {"steps": {"from": "tomorrow"}}}',
    ):
        state.write_text(text)
        again = export_process(folder, root)
        assert "It is written anew." in again.notes[0]
        assert again.run == exported.run
    state.unlink()
    assert export_process(folder, root).notes == ()
    assert (numbers(ask), counts(ask)) == ([*range(1, 10)], (9, 0, 0, 0))


def test_a_damaged_file_at_the_end_stops_an_export(ended: Made, root: Path) -> None:
    """Nobody guesses what was in it."""
    folder = ended()
    trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
    exported = export_process(folder, root)
    state_file(root, exported.process).unlink()
    (part,) = root.glob("project=*/job=*/table=torch_trace/*/*.parquet")
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(DamagedHistory, match="is damaged"):
        export_process(folder, root)


@pytest.mark.parametrize("is_of_before", [False, True])
def test_who_a_process_is_stays_in_one_place(
    ended: Made, root: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, is_of_before: bool
) -> None:
    """Though it is attached to again on another day, and learns its job and rank after a while."""
    folder, writer = ended(started_ns=10**18), trace_writer(capacity=64, rows=9)
    writer.save(folder.ring("torch_trace"))
    with monkeypatch.context() as patch:
        patch.setattr(export, "has_ended", lambda _: False)
        exported = export_process(folder, root)
    if is_of_before:  # an earlier version, which wrote down no place
        path = state_file(root, exported.process)
        told = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in told.items() if k not in {"job", "day"}}))
    folder.write_card(card_of(folder.pid, 77, started_ns=2 * 10**18, job="llm", rank=1))
    writer.write(**trace_values(10))
    writer.save(folder.ring("torch_trace"))
    assert export_process(folder, root).notes == ()
    assert ask("SELECT has_ended, rank FROM processes") == [{"has_ended": True, "rank": 1}]
    assert (numbers(ask), counts(ask)) == ([*range(1, 11)], (10, 0, 0, 0))
    (kept,) = find_kept(str(root), (exported.run,), timeout_s=60, notes=[])
    for rank in (EVERY_RANK, 1):
        assert kept.query("SELECT count(*) AS n FROM torch_trace", rank) == [{"n": 10}]
    state_file(root, exported.process).write_text("{")
    again = export_process(folder, root)
    assert (again.job, len(again.notes)) == (None, 1)
    assert (numbers(ask), ask("SELECT rank FROM processes")) == ([*range(1, 11)], [{"rank": 1}])


def test_who_a_process_is_comes_again_after_it_was_removed(
    ended: Made, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody had exported it for longer than is kept; one that was exported whole stays away."""
    folder = ended(started_ns=time.time_ns() - 10 * DAY_NS)
    trace_writer(capacity=64, rows=9).save(folder.ring("torch_trace"))
    with monkeypatch.context() as patch:
        patch.setattr(export, "has_ended", lambda _: False)
        export_process(folder, root)
    for there in (3, 0):  # processes, exports, environment
        for path in root.glob("project=*/**/*.parquet"):
            os.utime(path, ns=(0, time.time_ns() - 9 * DAY_NS))
        compact_folder(root, Keep(days=7))
        assert not list(root.glob("project=*/**/*.parquet"))
        assert export_process(folder, root).notes == ()
        assert len(list(root.glob("project=*/**/*.parquet"))) == there


def test_two_exports_of_one_process_do_not_meet(ended: Made, root: Path) -> None:
    """The second is told, and nothing is doubled."""
    folder = ended()
    exported = export_process(folder, root)
    with (
        locked(root, state_file(root, exported.process)),
        pytest.raises(HistoryBusy, match=r"^process \d+ of .+ is being exported by"),
    ):
        export_process(folder, root)


def test_a_folder_that_takes_no_file_is_a_sentence(ended: Made, tmp_path: Path) -> None:
    """Also where what is in the way is a file."""
    folder = ended()
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryUnwritable, match="cannot be written: Not a directory"):
        export_process(folder, tmp_path / "file" / "history")


def test_a_full_disk_costs_nothing(
    ended: Made, root: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is there by half; once there is room the export goes on where it ended."""
    folder = ended()
    trace_writer(capacity=8192, rows=8000).save(folder.ring("torch_trace"))
    export_process(ended(start_time=78), root)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(HistoryUnwritable, match="File too large"):
            export_process(folder, root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert numbers(ask) == []
    assert not list(root.glob("_probing/unfinished/*/*"))
    export_process(folder, root)
    assert numbers(ask) == [*range(1, 8001)]


def test_a_clock_that_is_set_back_costs_nothing(
    tmp_path: Path, root: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither rows from before, nor those after it; none comes twice, and none waits for it."""
    pid = os.getpid()
    started = process.start_time(pid)
    assert started is not None
    folder = RunDirectory(tmp_path / "home").create_folder(pid, started)
    folder.write_card(card_of(pid, started))
    writer = trace_writer(capacity=64, rows=10)
    writer.save(folder.ring("torch_trace"))
    export_process(folder, root)
    now_ns = time.time_ns() - 40 * 86_400 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    monkeypatch.setattr(time, "time", lambda: now_ns / 1e9)
    for _ in range(2):
        writer.write(**trace_values(writer.written + 1))
        writer.save(folder.ring("torch_trace"))
        export_process(folder, root)
        compact_folder(root, Keep(days=3000))
    assert (numbers(ask), counts(ask)) == ([*range(1, 13)], (12, 0, 0, 0))
    assert len(ask("FROM processes")) == 1


def test_ranks_of_one_start_are_one_run(root: Path) -> None:
    """A second start under the same name, and a restart, are others; asked again, they are same."""
    at = 1_700_000_000_000_000_000

    def run(name: str, rank: int, **others: Any) -> str:
        card = card_of(1, 1, job="llm", rank=rank, **{"started_ns": at, **others})
        return run_of(root, "gpt", card, name)

    first = [run("a", 0), run("b", 1, started_ns=at + 9 * 10**9), run("a", 0)]
    assert first == ["llm-20231114T221320"] * 3
    assert run("c", 0, started_ns=at + 30 * 10**9) == "llm-20231114T221350"
    assert run("d", 1, started_ns=at + 31 * 10**9) == "llm-20231114T221350"
    assert run("e", 0, attempt=1) == "llm-20231114T221320-restart-1"
    assert run("f", 2, started_ns=at + 3600 * 10**9) == "llm-20231114T231320"
    assert run("b", 1) == first[0]


@pytest.mark.parametrize("order", [("b0", "a0", "b1", "a1"), ("a0", "b0", "a1", "b1")])
def test_ranks_of_two_starts_are_not_crossed(root: Path, order: tuple[str, ...]) -> None:
    """A rank joins the start that it is nearest to, in whatever order the ranks are exported."""
    minute = 60 * 10**9
    began = {"a": 1_700_000_000 * 10**9, "b": 1_700_000_000 * 10**9 + 3 * minute}
    runs = {}
    for name in order:
        start, rank = name[0], int(name[1])
        begun_ns = began[start] + rank * 10**9
        card = card_of(1, 1, job="llm", rank=rank, started_ns=begun_ns)
        runs[name] = run_of(root, "gpt", card, name)
    assert runs["a0"] == runs["a1"] != runs["b0"] == runs["b1"]


@pytest.mark.parametrize(
    ("words", "project"),
    [
        (("python", "train.py", "--lr", "1"), "train"),
        (("python", "-u", "-W", "error", "/code/big model.py"), "big model"),
        (("python", "-m", "pkg.train", "x"), "pkg.train"),
        (("python", "-um", "probing._run", "/code/train.py"), "train"),
        (("python", "-c", "pass"), "-c"),
        (("python",), "python3"),
    ],
)
def test_a_run_belongs_to_its_script(words: tuple[str, ...], project: str) -> None:
    """Where nobody says what else."""
    assert project_of(card_of(1, 1, command=words)) == project


def test_long_names_stay_apart() -> None:
    """A file system takes 255 bytes, and two jobs may differ behind them."""
    names = {quoted("ü" * 300 + end) for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) < 255


@pytest.mark.parametrize("value", [None, "a b", "k8s/job=1", "..", "", "ü%20", "127.0.0.1:29500"])
def test_names_become_folders_and_back(value: str | None) -> None:
    """Whatever a job is called, no folder means another one."""
    text = quoted(value)
    assert "/" not in text
    assert text not in {"", ".", ".."}
    assert unquoted(text) == (value if value != "" else " ")


def test_the_books_balance() -> None:
    """However rows come, are taken and go, each is counted once."""
    books, chance = Books(), np.random.default_rng(7)
    written = 0
    for _ in range(200):
        written += int(chance.integers(0, 50))
        gone = max(0, written - 64)
        books.see(written=written, overwritten=gone)
        there = np.arange(gone + 1, written + 1)
        taken = there[books.are_waiting(there) & (chance.random(len(there)) < 0.5)]
        if len(taken):
            books.take(taken, np.full(len(taken), NULL_INT))
        books = Books.from_json(books.to_json())
        assert books.rows + books.overwritten + len(books.waiting) == written


def test_a_job_whose_name_is_not_utf8_is_exported(ended: Made, root: Path, ask: Ask) -> None:
    """The card of another encoding's name reads with `?` for what has no UTF-8, and its rows go."""
    folder, writer = ended(job="j?", rank=0), trace_writer(capacity=64, rows=5)
    card = (folder.path / "card.json").read_bytes().replace(b'"j?"', b'"j\\udcff"')
    (folder.path / "card.json").write_bytes(with_checksum(b"{" + card.partition(b",")[2]))
    writer.save(folder.ring("torch_trace"))
    assert export_process(folder, root).job == "j?"
    assert ask("SELECT DISTINCT job FROM torch_trace") == [{"job": "j?"}]


def nothing_of(folder: ProcessFolder) -> Exported:
    """What is told of a process that had nothing new."""
    return Exported(
        run="a run", process=folder.path.name, project="gpt", job=None, rank=None, host="a host",
        pid=folder.pid, has_ended=True, tables=(), notes=(),
    )  # fmt: skip


class Failing:
    """A place that fails of one process, in a way that nobody has thought of."""

    def __init__(self, fails_for: ProcessFolder) -> None:
        self.name, self.taken = "a place", list[ProcessFolder]()
        self._fails_for = fails_for

    def export(self, folder: ProcessFolder, *, project: str | None = None) -> Exported:
        """Take it, or fail."""
        if folder == self._fails_for:
            raise ValueError("what is this?")
        self.taken.append(folder)
        return nothing_of(folder)


def test_one_process_does_not_end_the_export_of_all(
    ended: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --every, an error that nobody has thought of is told once, and the others go on."""
    bad, good = ended(start_time=1), ended(start_time=2)
    place = Failing(bad)
    kept = _Kept(cast("Any", place), None)
    for folder in (bad, good, bad):
        kept.take(folder)
    assert place.taken == [good]
    assert capsys.readouterr().err.count("ValueError: what is this?") == 1


def test_what_is_asked_to_end_exports_once_more(
    ended: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod's exporter gets SIGTERM as the training has ended: the last rows are kept, too."""
    first = ended(start_time=1)
    monkeypatch.setenv("PROBING_HOME", str(first.path.parent))
    taken: list[str] = []

    class Place:
        name = "there"

        def export(self, folder: ProcessFolder, *, project: str | None) -> Exported:
            """Take it; meanwhile the signal comes, and then something ends."""
            taken.append(folder.path.name)
            if len(taken) == 1:
                signal.raise_signal(signal.SIGTERM)
                ended(start_time=2)
            return nothing_of(folder)

        def drain(self) -> None:
            """Nothing waits."""

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        _go_on(Target(endpoints=("all",)), cast("Any", Place()), None, every_s=600, keep=None)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(set(taken)) == len(taken) == 2
