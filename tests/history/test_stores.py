"""Runs in an object store: rows in are rows out, whatever becomes of the store meanwhile."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.errors import (
    DamagedHistory,
    HistoryBusy,
    HistoryUnwritable,
    NoHistory,
    SqlRefused,
    StoreUnreachable,
    UsageError,
)
from probing.history.compaction.keep import Keep
from probing.history.export import export_process
from probing.history.layout import state_file
from probing.history.query import History
from probing.history.runs import runs_of
from probing.history.stores import holding
from probing.history.stores.bucket import bucket_of
from probing.history.stores.compaction import compact_store
from probing.history.stores.holding import held
from probing.history.stores.naming import run_in
from probing.history.stores.objects import Store
from probing.history.stores.spool import Spool
from probing.linux import process
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.script.own_tables import declaration
from tests.harness.cards import card_of
from tests.harness.late import late
from tests.harness.ring_writer import RingWriter, trace_values, trace_writer
from tests.harness.s3_server import Line
from tests.harness.targets import DEADLINE_S, Target, clean_env, program_path, wait_until

late("moto", reason="of tests/history.txt")

Made = Callable[..., ProcessFolder]
Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def ask(url: str) -> Ask:
    """Rows of the history."""
    return lambda sql: History(url).query(sql, timeout_s=60).to_pylist()


@pytest.fixture
def live(tmp_path: Path) -> ProcessFolder:
    """The run folder of this very process."""
    pid = os.getpid()
    started = process.start_time(pid)
    assert started is not None
    folder = RunDirectory(tmp_path / "home").create_folder(pid, started)
    folder.write_card(card_of(pid, started))
    return folder


def spool_of(store: Store, root: Path, who: str = "me", most_bytes: int = 1 << 30) -> Spool:
    """A spool as a process that has just begun has it."""
    return Spool(store, root, who=who, most_bytes=most_bytes)


def numbers(ask: Ask) -> list[int]:
    """The rows of python.torch_trace that came out."""
    return [row["seq"] for row in ask("SELECT seq FROM torch_trace ORDER BY seq")]


def test_a_column_whose_type_has_changed_is_as_in_a_folder(
    ended: Made, url: str, root: Path
) -> None:
    """A script's own table had whole numbers in one run and others in the next: all are there."""
    place = bucket_of(url, os.environ)
    for start, value in enumerate((2**53 + 1, 0.5, True), 77):
        mine = declaration(
            "mine", {"x": type(value)}, doc="", rows=64, text_bytes=8, origin="script"
        )
        folder, ring = ended(start), RingWriter(mine.declared, capacity=64)
        ring.write(step=start, x=value)
        ring.save(folder.ring("mine"))
        place.export(folder)
        export_process(folder, root)
    place.drain()
    sql = "SELECT typeof(x) AS kind, x FROM mine WHERE x > 0.1 ORDER BY step"
    history, folder_history = History(url), History(str(root))
    rows = history.query(sql, timeout_s=60).to_pylist()
    assert rows == folder_history.query(sql, timeout_s=60).to_pylist()
    assert rows == [{"kind": "DOUBLE", "x": x} for x in (2.0**53, 0.5, 1.0)]
    assert history.notes == []


def test_runs_are_kept_and_asked(ended: Made, url: str, ask: Ask, store: Store) -> None:
    """As in a folder: partitions are columns, the run is one of all ranks, nothing is left here."""
    place = bucket_of(url, os.environ)
    runs = []
    for rank in range(2):
        folder = ended(77 + rank, job="a/b", rank=rank, world_size=2)
        trace_writer(capacity=64, rows=20 + rank).save(folder.ring("torch_trace"))
        runs.append(place.export(folder, project="gpt").run)
        place.export(folder)
    place.drain()
    assert runs[0] == runs[1]
    sql = "SELECT project, job, rank, day, count(*) AS n FROM torch_trace WHERE {} GROUP BY ALL"
    of_one = {"project": "gpt", "job": "a/b", "rank": 1, "day": "2023-11-14", "n": 21}
    assert ask(sql.format("rank = 1")) == ask(sql.format("seq > 0 AND pid > 0 AND rank = 1"))
    assert ask(sql.format("job = 'a/b' AND rank > 0")) == [of_one]
    assert ask(sql.format("day < '2020-01-01'")) == []
    assert ask("SELECT step, loss FROM steps") == []
    (run,) = runs_of(History(url), timeout_s=60)
    assert (run.run, run.processes, run.running) == (runs[0], 2, 0)
    names = {row["name"] for row in ask("SHOW TABLES")}
    assert {"steps", "processes"} <= names
    assert not [name for name in names if " " in name]
    with pytest.raises(SqlRefused):
        ask("FROM read_parquet('/etc/*.parquet')")
    spool = Path(os.environ["PROBING_HISTORY_SPOOL"])
    assert not list(spool.rglob("*.parquet"))


def test_an_upload_that_fails_in_the_middle_is_done_again(
    ended: Made, ask: Ask, store: Store, line: Line, tmp_path: Path
) -> None:
    """Half a file is never seen; the rows wait in the spool, which says how many bytes."""
    folder, writer = ended(), trace_writer(capacity=4096, rows=4000)
    writer.save(folder.ring("torch_trace"))
    line.cut = (rb"PUT \S*torch_trace\S*parquet", 99)
    with pytest.raises(StoreUnreachable) as caught:
        spool_of(store, tmp_path / "spool").export(folder)
    assert "wait in" in caught.value.help
    assert line.cut[1] < 99, line.requests
    line.cut = (b"", 0)
    assert not [one for one in store.objects("project=train") if "torch_trace" in one.name]
    spool = spool_of(store, tmp_path / "spool")
    spool.drain()
    assert (numbers(ask), spool.waiting()) == ([*range(1, 4001)], 0)


def test_a_store_that_is_down_costs_no_row(
    tmp_path: Path, live: ProcessFolder, ask: Ask, store: Store, line: Line
) -> None:
    """What was exported waits in the spool; once that or its disk is full, in the ring."""
    folder, writer = live, trace_writer(capacity=64, rows=10)
    writer.save(folder.ring("torch_trace"))
    spool_of(store, tmp_path / "spool").export(folder)

    def record() -> None:
        for _ in range(10):
            writer.write(**trace_values(writer.written + 1))
        writer.save(folder.ring("torch_trace"))

    line.is_down = True
    record()
    with pytest.raises(StoreUnreachable, match="cannot be asked: NETWORK"):
        spool_of(store, tmp_path / "spool").export(folder)
    line.is_down = False
    assert numbers(ask) == [*range(1, 11)]
    line.is_down = True
    record()
    small = spool_of(store, tmp_path / "spool", most_bytes=1000)
    with pytest.raises(HistoryUnwritable, match="wait for s3://"):
        small.export(folder)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(HistoryUnwritable, match="File too large"):
            spool_of(store, tmp_path / "spool").export(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    line.is_down = False
    spool = spool_of(store, tmp_path / "spool", most_bytes=1000)
    spool.export(folder)
    assert numbers(ask) == [*range(1, 31)]
    (books,) = ask("SELECT exported, overwritten, damaged, waiting FROM exports")
    assert tuple(books.values()) == (30, 0, 0, 0)
    assert not [path for path in tmp_path.rglob("*.parquet") if ".000" in path.name]


def test_a_lost_spool_is_made_anew(
    ended: Made, ask: Ask, store: Store, tmp_path: Path, line: Line
) -> None:
    """Its books are in the store, and files that they do not count yet are found there."""
    folder, writer = ended(), trace_writer(capacity=64, rows=10)
    writer.save(folder.ring("torch_trace"))
    exported = spool_of(store, tmp_path / "one").export(folder)
    books = state_file(Path(), exported.process).as_posix()
    before = store.get(books)
    writer.write(**trace_values(11))
    writer.save(folder.ring("torch_trace"))
    spool_of(store, tmp_path / "one").export(folder)
    assert before is not None
    store.put(books, before)  # as if it had been killed before the books followed the rows
    spool_of(store, tmp_path / "two").export(folder)
    assert numbers(ask) == [*range(1, 12)]
    assert len(ask("FROM processes")) == 1
    store.put(books, b'{"run": "of tomorrow"}')
    with pytest.raises(DamagedHistory, match="not what this version of probing writes"):
        spool_of(store, tmp_path / "three").export(folder)


def test_two_exporters_by_mistake_do_not_double_a_row(
    ended: Made, ask: Ask, store: Store, tmp_path: Path
) -> None:
    """The spool of another user is told that the process is exported already; nothing is lost."""
    folder, writer = ended(), trace_writer(capacity=64, rows=10)
    writer.save(folder.ring("torch_trace"))
    spool_of(store, tmp_path / "one", "one").export(folder)
    with pytest.raises(HistoryBusy, match="from another spool by another process"):
        spool_of(store, tmp_path / "two", "two").export(folder)
    writer.write(**trace_values(11))
    writer.save(folder.ring("torch_trace"))
    spool_of(store, tmp_path / "one", "one").export(folder)
    assert numbers(ask) == [*range(1, 12)]


def test_one_of_many_is_alone(store: Store) -> None:
    """However many come at once, and only where nobody that lives has a mark."""
    inside, most, failed = [0], [0], list[BaseException]()

    def come() -> None:
        try:
            with held(store, "_probing/lock", wait_s=DEADLINE_S, busy="it is held"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                store.objects("_probing")
                inside[0] -= 1
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert (most[0], failed) == (1, [])
    store.put("_probing/lock/somebody", b"1")
    with (
        pytest.raises(HistoryBusy, match="it is held by another process"),
        held(store, "_probing/lock", wait_s=0, busy="it is held"),
    ):
        pass


def test_ranks_of_one_start_are_one_run(store: Store) -> None:
    """Also if all of them are exported at the same moment, by machines that know of no other."""
    at = 1_700_000_000_000_000_000
    runs: dict[str, str] = {}

    def join(name: str, rank: int, started_ns: int = at) -> str:
        card = card_of(1, 1, job="llm", rank=rank, started_ns=started_ns)
        runs[name] = run_in(store, "gpt", card, name)
        return runs[name]

    threads = [threading.Thread(target=join, args=(f"p{rank}", rank)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert runs == {f"p{rank}": "llm-20231114T221320" for rank in range(3)}
    assert join("p1", 1) == "llm-20231114T221320"
    assert join("q1", 1, at + 30 * 10**9) == "llm-20231114T221350"
    assert join("q0", 0, at + 31 * 10**9) == "llm-20231114T221350"


def test_a_store_may_take_long_to_list_everything(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who compacts it stays alone meanwhile, and says what was slow where it cannot know that."""
    passed_s, objects = [0.0], store.objects

    def listed(folder: str = "") -> Any:
        passed_s[0] += 11 if "table=" in folder else 0
        return objects(folder)

    for number in range(8):
        store.put(f"project=a/job={number}/table=steps/day=2026-11-29/of another", b"x")
    slow = SimpleNamespace(monotonic=lambda: passed_s[0], sleep=time.sleep)
    monkeypatch.setattr(store, "objects", listed)
    monkeypatch.setattr(holding, "time", slow)
    assert "the store took so long" in compact_store(store).notes[0]
    monkeypatch.setattr(holding, "_BATCH", 2)
    done = compact_store(store)
    assert (done.is_complete, done.notes) == (True, [])


@pytest.mark.parametrize("job", ["\u8bad\u7ec3" * 11, "\u043e\u0431" * 22, "x" * 250])
def test_ranks_of_a_job_with_a_long_name_are_one_run(store: Store, job: str) -> None:
    """Also the one that began it, and two runs that begin in one second are two."""
    cards = [card_of(1, 1, job=job, rank=rank, started_ns=10**18) for rank in (0, 1, 2, 0, 1)]
    first, *others = [run_in(store, "gpt", card, f"p{n}") for n, card in enumerate(cards)]
    assert others[:2] == [first, first]
    assert others[2:] == [others[2]] * 2 != [first, first]
    assert first.encode()


def test_small_objects_become_few(
    ended: Made, url: str, ask: Ask, store: Store, tmp_path: Path
) -> None:
    """With the same rows; a file of which the books do not know yet stays, and a torn one."""
    place = bucket_of(url, os.environ)
    for number in range(3):
        folder = ended(100 + number)
        trace_writer(capacity=64, rows=5).save(folder.ring("torch_trace"))
        place.export(folder)
    torn = next(one.name for one in store.objects() if "torch_trace" in one.name)
    data = store.get(torn)
    assert data is not None
    store.put(torn.replace(".000001.", ".000002."), data)
    store.put(torn, data[:-30])
    done = place.compact()
    assert (done.new_files, done.is_complete) == (4, True)
    assert [note for note in done.notes if torn in note and "is damaged" in note], done.notes
    left = sorted(one.name for one in store.objects("project=train"))
    assert sum("merged-" in name for name in left) == 4, left
    assert len(left) == 6, left
    history = History(url)
    (row,) = history.query("SELECT count(*) AS n FROM torch_trace", timeout_s=60).to_pylist()
    assert row == {"n": 15}
    assert [note for note in history.notes if torn in note and "left out" in note]
    assert len(ask("FROM processes")) == 3


@pytest.mark.nightly
def test_what_is_old_is_removed(ended: Made, url: str, ask: Ask, store: Store) -> None:
    """Rows by their day; what a process was stays as long as it was exported lately."""
    place, folder = bucket_of(url, os.environ), ended()
    trace_writer(capacity=64, rows=5).save(folder.ring("torch_trace"))
    place.export(folder)
    done = place.compact(Keep(days=30))
    assert (done.removed_files, done.removed_upto) == (1, "2023-11-14")
    assert ask("SELECT count(*) AS n FROM torch_trace") == [{"n": 0}]
    assert len(ask("FROM processes")) == 1
    place.export(folder)
    assert ask("SELECT exported FROM exports") == [{"exported": 5}]


def test_a_query_asks_for_no_sizes_that_it_knows(
    ended: Made, url: str, ask: Ask, line: Line
) -> None:
    """It has listed the objects; but what a process is may be told anew, in more bytes."""
    folder = ended()
    trace_writer(capacity=64, rows=5).save(folder.ring("torch_trace"))
    bucket_of(url, os.environ).export(folder)
    line.requests.clear()
    assert ask("SELECT count(*) AS n FROM torch_trace, processes") == [{"n": 5}]
    heads = [one for one in line.requests if one.startswith("HEAD") and ".parquet" in one]
    assert {"table%3Dprocesses" in one for one in heads} == {True}, heads


def test_a_query_whose_files_are_replaced_begins_again(
    ended: Made, url: str, store: Store, tmp_path: Path
) -> None:
    """They were listed, and are gone: the answer is that of those in their place."""
    place = bucket_of(url, os.environ)
    for number in range(2):
        folder = ended(100 + number)
        trace_writer(capacity=64, rows=5).save(folder.ring("torch_trace"))
        place.export(folder)
    history = History(url)
    first = history.source.files

    def listed(folders: Any) -> list[str]:
        found = first(folders)
        history.source.files = first
        assert place.compact().new_files
        return found

    history.source.files = listed
    sql = "SELECT count(*) AS n, count(DISTINCT pid * 100 + seq) AS d FROM torch_trace"
    assert history.query(sql, timeout_s=60).to_pylist() == [{"n": 10, "d": 5}]


def test_columns_of_all_versions_are_there(ended: Made, url: str, ask: Ask, store: Store) -> None:
    """A table, and a column, of a newer version; what breaks off within is never a short answer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder, place = ended(), bucket_of(url, os.environ)
    trace_writer(capacity=64, rows=5).save(folder.ring("torch_trace"))
    place.export(folder)
    name = next(one.name for one in store.objects() if "torch_trace" in one.name)
    data = store.get(name) or b""
    rows = pq.read_table(pa.BufferReader(data))
    newer = pa.BufferOutputStream()
    pq.write_table(rows.append_column("colour", pa.array(["red"] * 5)), newer)
    store.put(name.replace(".000001.", ".000002."), newer.getvalue().to_pybytes())
    store.put(name.replace("torch_trace", "from_tomorrow"), newer.getvalue().to_pybytes())
    sql = "SELECT colour, count(*) AS n FROM torch_trace GROUP BY ALL ORDER BY ALL"
    assert ask(sql) == [{"colour": "red", "n": 5}, {"colour": None, "n": 5}]
    assert ask("SELECT max(colour) AS c FROM from_tomorrow") == [{"c": "red"}]
    at = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(rows.column_names.index("seq"))
    first = at.dictionary_page_offset or at.data_page_offset
    bad, end = bytearray(data), first + at.total_compressed_size
    bad[end - 8 : end] = b"\xff" * 8
    store.put(name, bytes(bad))
    with pytest.raises(DamagedHistory, match=re.escape(name)):
        ask("SELECT sum(seq) FROM torch_trace")


@pytest.mark.parametrize(
    ("kills", "capacity"), [(2, 4096), pytest.param(200, 16384, marks=pytest.mark.nightly)]
)
def test_no_kill_loses_or_doubles_a_row(
    kills: int, capacity: int, url: str, ask: Ask, tmp_path: Path
) -> None:
    """Exports that are killed at any moment: rows in are rows out, each once."""
    told = run_program("killed_exports", tmp_path, url, kills, capacity)
    assert told["codes"] == [0, 0], told
    assert told["died"] > 0, told
    assert numbers(ask) == [*range(1, told["written"] + 1)], told
    (books,) = ask("SELECT exported, overwritten, damaged, waiting FROM probing.exports")
    assert tuple(books.values()) == (told["written"], 0, 0, 0)


@pytest.mark.nightly
@pytest.mark.timeout(1000)  # among much else
@pytest.mark.parametrize("roll_up", [(), (1,)])
def test_no_killed_compaction_loses_or_doubles_a_row(
    url: str, tmp_path: Path, roll_up: tuple[int, ...]
) -> None:
    """Nor does a query see anything else meanwhile; also of rows that are rolled up."""
    told = run_program("killed_compactions", tmp_path, url, 30, *roll_up)
    assert told["died"] > 0, told
    assert told["seen"] == told["wanted"], told
    assert told["notes"] == [], told


def run_program(name: str, tmp_path: Path, *words: object) -> dict[str, Any]:
    """What a program says that kills others."""
    home = tmp_path / "home"
    argv = [sys.executable, str(program_path(name)), str(home), *map(str, words)]
    env = clean_env(home, PROBING_HISTORY_SPOOL=str(tmp_path / "spool"))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=8 * DEADLINE_S)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_bucket_that_is_not_there_is_no_empty_history(url: str) -> None:
    """Whoever mistypes its name is told so, whether he asks or compacts: exit code 3."""
    missing = "s3://no-such-bucket/x"
    with pytest.raises(StoreUnreachable, match="NO_SUCH_BUCKET") as caught:
        History(missing)
    assert caught.value.exit_code == 3
    with pytest.raises(StoreUnreachable, match="NO_SUCH_BUCKET"):
        bucket_of(missing, os.environ).compact()


def test_commands_say_what_is_wrong(url: str, line: Line, ended: Made, tmp_path: Path) -> None:
    """No traceback, and the exit code that says whose fault it is."""
    with pytest.raises(NoHistory, match="no process was exported"):
        History(url)
    with pytest.raises(StoreUnreachable, match="NO_SUCH_BUCKET"):
        bucket_of("s3://no-such-bucket/x", os.environ).export(ended())
    with pytest.raises(UsageError, match="is no place for a history"):
        History("ftp://server/x")
    line.is_down = True
    with pytest.raises(StoreUnreachable, match="cannot be asked: NETWORK_CONNECTION"):
        History(url)


@pytest.mark.nightly
def test_a_node_server_goes_on_while_its_store_is_away(
    ended: Made, url: str, line: Line, ask: Ask
) -> None:
    """It is told once that it is away, and once that it is back; all rows come by then."""
    folder, writer = ended(), trace_writer(capacity=64, rows=40)
    writer.save(folder.ring("torch_trace"))
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
    home = folder.path.parent
    node = Target(argv, home, home.parent, PROBING_HISTORY=url, PROBING_HISTORY_EVERY_S="1")
    try:
        wait_until(lambda: kept(ask) == 40, "all rows of the process")
        line.is_down = True
        later = ended(start_time=78)
        trace_writer(capacity=64, rows=8).save(later.ring("torch_trace"))
        node.wait_for_output("cannot be asked")
        line.is_down = False
        wait_until(lambda: kept(ask) == 48, "those of one that came meanwhile")
        node.wait_for_output("takes what is exported again")
        assert node.output.count("cannot be asked") == 1
        done = node.run("history", "runs", "--json", PROBING_HISTORY=url)
        assert len(json.loads(done.stdout)) == 2, done.stderr
    finally:
        node.reap()


def kept(ask: Ask) -> int:
    """How many calls of modules are in the history; none while there is none."""
    try:
        return int(ask("SELECT count(*) AS n FROM torch_trace")[0]["n"])
    except NoHistory:
        return 0
